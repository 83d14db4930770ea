"""One document a kind that spells out every field the wire types read, with a value that is not its default.

Tests decode these and encode the result again: what comes back must be the same, so a misspelt or
forgotten wire name shows.
"""

from typing import Any

METADATA: dict[str, Any] = {
    "name": "thing",
    "namespace": "team",
    "uid": "u-1",
    "labels": {"app": "x", "empty": ""},
    "annotations": {"pod-group-name": "pg"},
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 30,
    "resourceVersion": "42",
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-2", "controller": True}],
}
EXPRESSION = {"key": "tier", "operator": "In", "values": ["a", "b"]}
SELECTOR = {"matchLabels": {"app": "db"}, "matchExpressions": [EXPRESSION]}
NODE_TERM = {"matchExpressions": [EXPRESSION], "matchFields": [{**EXPRESSION, "key": "metadata.name"}]}
NODE_SELECTOR = {"nodeSelectorTerms": [NODE_TERM]}
POD_TERM = {
    "labelSelector": SELECTOR,
    "namespaces": ["other"],
    "namespaceSelector": SELECTOR,
    "topologyKey": "zone",
}
POD_AFFINITY = {
    "requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM],
    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": POD_TERM}],
}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "reason": "Because",
    "message": "all well",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
RESOURCES = {"requests": {"cpu": "500m", "nvidia.com/gpu": 1}, "limits": {"memory": 0.5}}
CONTAINER = {
    "name": "main",
    "resources": RESOURCES,
    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1", "protocol": "UDP"}],
    "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k", "optional": True}}}],
    "envFrom": [{"configMapRef": {"name": "cm", "optional": True}}],
    "volumeMounts": [{"name": "v"}],
    "restartPolicy": "Always",
}
TOLERATION = {
    "key": "gpu",
    "operator": "Equal",
    "value": "yes",
    "effect": "NoExecute",
    "tolerationSeconds": 30,
}
DEVICE_SELECTORS = [{"cel": {"expression": "device.driver == 'gpu'"}}]
OPAQUE = {"driver": "gpu.example.com", "parameters": {"sharing": {"replicas": 2}, "list": [1, None]}}
SUB_REQUEST = {
    "name": "big",
    "deviceClassName": "gpu",
    "selectors": DEVICE_SELECTORS,
    "allocationMode": "All",
    "count": 2,
    "tolerations": [TOLERATION],
    "capacity": {"requests": {"memory": "10Gi"}},
}
EXACTLY = {**{key: value for key, value in SUB_REQUEST.items() if key != "name"}, "adminAccess": True}
REQUESTS = [{"name": "r", "exactly": EXACTLY}, {"name": "s", "firstAvailable": [SUB_REQUEST]}]
ALLOCATION = {
    "devices": {
        "results": [
            {
                "request": "r",
                "driver": "gpu.example.com",
                "pool": "node-1",
                "device": "gpu-0",
                "adminAccess": False,
                "tolerations": [TOLERATION],
            }
        ],
        "config": [{"source": "FromClass", "requests": ["r"], "opaque": OPAQUE}],
    },
    "nodeSelector": NODE_SELECTOR,
    "allocationTimestamp": "2026-01-01T00:00:00Z",
}
TOPOLOGY_CONSTRAINT = {"topology": "net", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
QUEUE_RESOURCE = {"quota": 1.5, "limit": -1.0, "overQuotaWeight": 2.0}

SAMPLES: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": METADATA,
        "spec": {"unschedulable": True, "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "8"}, "capacity": {"cpu": 8}, "conditions": [CONDITION]},
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": METADATA,
        "spec": {
            "containers": [CONTAINER],
            "initContainers": [CONTAINER],
            "nodeName": "node-1",
            "nodeSelector": {"disk": "ssd"},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": NODE_SELECTOR,
                    "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": NODE_TERM}],
                },
                "podAffinity": POD_AFFINITY,
                "podAntiAffinity": POD_AFFINITY,
            },
            "tolerations": [TOLERATION],
            "schedulerName": "kai-scheduler",
            "schedulingGates": [{"name": "gate"}],
            "overhead": {"cpu": "10m"},
            "resources": RESOURCES,
            "volumes": [
                {"name": "v", "configMap": {"name": "cm", "optional": True}},
                {"name": "w", "projected": {"sources": [{"configMap": {"name": "cm", "optional": True}}]}},
                {"name": "x", "persistentVolumeClaim": {"claimName": "pvc", "readOnly": True}},
                {"name": "y", "ephemeral": {}},
            ],
            "priorityClassName": "train",
            "priority": 50,
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": SELECTOR,
                    "minDomains": 2,
                    "nodeAffinityPolicy": "Honor",
                    "nodeTaintsPolicy": "Ignore",
                    "matchLabelKeys": ["hash"],
                }
            ],
            "resourceClaims": [
                {"name": "a", "resourceClaimName": "claim"},
                {"name": "b", "resourceClaimTemplateName": "template"},
            ],
            "runtimeClassName": "nvidia",
            "terminationGracePeriodSeconds": 60,
            "workloadRef": {"name": "training", "podGroup": "workers", "podGroupReplicaKey": "1"},
            "schedulingGroup": {"podGroupName": "training-workers"},
        },
        "status": {
            "phase": "Running",
            "nominatedNodeName": "node-2",
            "qosClass": "Guaranteed",
            "startTime": "2026-01-01T00:00:05Z",
            "conditions": [CONDITION],
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "thing-b"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "thing-extended"},
        },
    },
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": METADATA,
        "value": 100,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": METADATA},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": METADATA},
    {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": METADATA,
        "spec": {
            "displayName": "Team",
            "parentQueue": "department",
            "priority": 0,
            "preemptMinRuntime": "10m",
            "reclaimMinRuntime": "1h30m",
            "admissionGating": True,
            "resources": {"gpu": QUEUE_RESOURCE, "cpu": QUEUE_RESOURCE, "memory": QUEUE_RESOURCE},
        },
        "status": {},  # not looked into
    },
    {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": METADATA,
        "spec": {
            "minMember": 0,
            "minSubGroup": 0,
            "queue": "team",
            "priorityClassName": "train",
            "preemptibility": "preemptible",
            "subGroups": [
                {
                    "name": "workers",
                    "parent": "all",
                    "minMember": 4,
                    "minSubGroup": 2,
                    "topologyConstraint": TOPOLOGY_CONSTRAINT,
                }
            ],
            "topologyConstraint": TOPOLOGY_CONSTRAINT,
            "markUnschedulable": False,
            "schedulingBackoff": -1,
            "stalenessGracePeriod": "-1s",
            "preemptionDelay": "5m0s",
        },
        "status": {
            "schedulingConditions": [
                {
                    "type": "UnschedulableOnNodePool",
                    "nodePool": "default",
                    "reason": "Unschedulable",
                    "message": "no",
                    "status": "True",
                    "transitionID": "7",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                    "reasons": [{"reason": "OverLimit", "message": "no", "details": {"queueDetails": {"name": "q"}}}],
                }
            ],
            "conditions": [],  # not looked into, as the next three
            "resourcesStatus": {},
            "state": {},
            "pods": {},
        },
    },
    {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": METADATA,
        "spec": {
            "podName": "thing",
            "selectedNode": "node-1",
            "receivedResourceType": "Fraction",
            "receivedGPU": {"count": 2, "portion": "0.50"},
            "selectedGPUGroups": ["g1", "g2"],
            "resourceClaimAllocations": [{"name": "a", "allocation": ALLOCATION}],
            "extendedResourceClaimAllocation": {
                "allocation": ALLOCATION,
                "deviceRequests": REQUESTS,
                "containerMappings": [
                    {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
                ],
            },
            "predictedNUMAZones": [{"zone": "node-0", "amount": {"cpu": "4"}}],
            "backoffLimit": 3,
        },
        "status": {"phase": "Failed", "reason": "no device", "failedAttempts": 2},
    },
    {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": METADATA,
        "spec": {"levels": [{"nodeLabel": "zone", "alias": "z"}]},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": METADATA,
        "spec": {
            "devices": {
                "requests": REQUESTS,
                "constraints": [
                    {"requests": ["r"], "matchAttribute": "gpu.example.com/numa"},
                    {"requests": ["r"], "distinctAttribute": "gpu.example.com/id"},
                ],
                "config": [{"requests": ["r"], "opaque": OPAQUE}],
            }
        },
        "status": {
            "allocation": ALLOCATION,
            "reservedFor": [{"apiGroup": "batch", "resource": "pods", "name": "thing", "uid": "u-1"}],
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": METADATA,
        "spec": {
            "driver": "gpu.example.com",
            "pool": {"name": "node-1", "generation": 3, "resourceSliceCount": 2},
            "nodeName": "node-1",
            "nodeSelector": NODE_SELECTOR,
            "allNodes": True,
            "perDeviceNodeSelection": True,
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {
                        "index": {"int": 0},
                        "healthy": {"bool": True},
                        "model": {"string": "A100"},
                        "driverVersion": {"version": "1.2.3"},
                    },
                    "capacity": {"memory": {"value": "40Gi"}},
                    "consumesCounters": [{"counterSet": "slices", "counters": {"memory": {"value": "10Gi"}}}],
                    "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}],
                    "bindingConditions": ["attached"],
                    "nodeName": "node-1",
                    "nodeSelector": NODE_SELECTOR,
                    "allNodes": True,
                }
            ],
            "sharedCounters": [{"name": "slices", "counters": {"memory": {"value": "40Gi"}}}],
        },
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": METADATA,
        "spec": {
            "selectors": DEVICE_SELECTORS,
            "config": [{"opaque": OPAQUE}],
            "extendedResourceName": "example.com/gpu",
        },
    },
    {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": METADATA,
        "attributes": [{"name": "topologyManagerPolicy", "value": "restricted"}],
        "topologyPolicies": ["Restricted"],
        "zones": [
            {
                "name": "node-0",
                "type": "Node",
                "resources": [{"name": "cpu", "capacity": "8", "allocatable": 7, "available": 6.5}],
            }
        ],
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": METADATA,
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "volumeMode": "Block",
            "volumeAttributesClassName": "gold",
            "claimRef": {"name": "data", "namespace": "team", "uid": "u-3"},
            "nodeAffinity": {"required": NODE_SELECTOR},
            "csi": {"driver": "csi.example.com", "volumeHandle": "vol-1"},
        },
        "status": {"phase": "Bound"},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": METADATA,
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "selector": SELECTOR,
            "resources": {"requests": {"storage": 5}},
            "volumeName": "pv-1",
            "storageClassName": "",
            "volumeMode": "Filesystem",
            "volumeAttributesClassName": "gold",
        },
        "status": {"phase": "Lost"},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": METADATA,
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
    },
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": METADATA, "spec": {"storageCapacity": True}},
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": METADATA,
        "spec": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 0}}]},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": METADATA,
        "storageClassName": "fast",
        "nodeTopology": SELECTOR,
        "capacity": "100Gi",
        "maximumVolumeSize": 0,
    },
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**METADATA, "generation": 2},
        "spec": {"minAvailable": "50%", "maxUnavailable": 1, "selector": SELECTOR},
        "status": {
            "currentHealthy": 4,
            "desiredHealthy": 2,
            "disruptionsAllowed": 2,
            "expectedPods": 4,
            "observedGeneration": 1,
        },
    },
]
