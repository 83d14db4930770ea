{{- /* Written by tools/chart.py: change src/pykai/operator/chart instead. */ -}}
{{- define "kai-scheduler.tag" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $tag := $image.tag | default $root.Values.global.tag | default $root.Chart.AppVersion -}}
{{- has $root.Values.global.fipsMode (list "on" "only") | ternary (printf "%s-fips" $tag) $tag -}}
{{- end -}}
{{- define "kai-scheduler.image" -}}
{{- $root := index . 0 }}{{ $image := index . 1 -}}
{{- $registry := $image.registry | default $root.Values.global.registry -}}
{{- if $registry }}{{ $registry }}/{{ end }}{{ $image.name }}:{{ include "kai-scheduler.tag" . -}}
{{- end -}}
{{- define "kai-scheduler.names" -}}
{{- $names := list -}}
{{- range . }}{{ $names = append $names .name }}{{ end -}}
{{- $names | toJson -}}
{{- end -}}
{{- define "kai-scheduler.config" -}}
apiVersion: kai.scheduler/v1
kind: Config
metadata:
  name: kai-config
  {{- if .Values.kaiConfig.render }}
  annotations:
    argocd.argoproj.io/sync-options: "SkipDryRunOnMissingResource=true,ServerSideApply=true"
  {{- end }}
spec:
  namespace: {{ .Release.Namespace | toJson }}
  global:
    replicaCount: {{ .Values.operator.replicaCount | toJson }}
    {{- if .Values.global.namespaceLabelSelector }}
    namespaceLabelSelector: {{ .Values.global.namespaceLabelSelector | toJson }}
    {{- end }}
    {{- if .Values.global.podLabelSelector }}
    podLabelSelector: {{ .Values.global.podLabelSelector | toJson }}
    {{- end }}
    {{- if .Values.global.nodePoolLabelKey }}
    nodePoolLabelKey: {{ .Values.global.nodePoolLabelKey | toJson }}
    {{- end }}
    {{- if .Values.global.jsonLog }}
    jsonLog: {{ .Values.global.jsonLog | toJson }}
    {{- end }}
    {{- if .Values.global.affinity }}
    affinity: {{ .Values.global.affinity | toJson }}
    {{- end }}
    {{- if .Values.global.requireDefaultPodAntiAffinityTerm }}
    requireDefaultPodAntiAffinityTerm: {{ .Values.global.requireDefaultPodAntiAffinityTerm | toJson }}
    {{- end }}
    {{- if .Values.global.nodeSelector }}
    nodeSelector: {{ .Values.global.nodeSelector | toJson }}
    {{- end }}
    {{- if .Values.global.tolerations }}
    tolerations: {{ .Values.global.tolerations | toJson }}
    {{- end }}
    {{- if .Values.global.daemonsetsTolerations }}
    daemonsetsTolerations: {{ .Values.global.daemonsetsTolerations | toJson }}
    {{- end }}
    {{- if .Values.global.priorityClassName }}
    priorityClassName: {{ .Values.global.priorityClassName | toJson }}
    {{- end }}
    {{- if .Values.global.securityContext }}
    securityContext: {{ .Values.global.securityContext | toJson }}
    {{- end }}
    {{- if .Values.global.vpa }}
    vpa: {{ .Values.global.vpa | toJson }}
    {{- end }}
    {{- if .Values.global.imagePullSecrets }}
    additionalImagePullSecrets: {{ include "kai-scheduler.names" .Values.global.imagePullSecrets | fromJsonArray | toJson }}
    {{- end }}
    {{- if .Values.podgrouper.queueLabelKey }}
    queueLabelKey: {{ .Values.podgrouper.queueLabelKey | toJson }}
    {{- end }}
    {{- if .Values.global.queueAdmissionGating.enabled }}
    queueAdmissionGating:
      enabled: true
      {{- if .Values.global.queueAdmissionGating.reservationTimeout }}
      reservationTimeout: {{ .Values.global.queueAdmissionGating.reservationTimeout | toJson }}
      {{- end }}
    {{- end }}
    {{- if .Values.networkPolicies.enabled }}
    networkPolicies: true
    {{- end }}
    {{- if or .Values.openshift (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clusterversions.config.openshift.io") }}
    openshift: true
    {{- end }}
  podGrouper:
    service:
      enabled: {{ .Values.podgrouper.enabled | toJson }}
      image:
        name: {{ .Values.podgrouper.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.podgrouper.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.podgrouper.image.pullPolicy | toJson }}
      {{- if .Values.podgrouper.resources }}
      resources: {{ .Values.podgrouper.resources | toJson }}
      {{- end }}
      {{- if .Values.podgrouper.affinity }}
      affinity: {{ .Values.podgrouper.affinity | toJson }}
      {{- end }}
      podDisruptionBudget:
        enabled: {{ .Values.podgrouper.podDisruptionBudget.enabled | toJson }}
        maxUnavailable: {{ .Values.podgrouper.podDisruptionBudget.maxUnavailable | toJson }}
      {{- if .Values.podgrouper.args }}
      args: {{ .Values.podgrouper.args | toJson }}
      {{- end }}
    args:
      genericKartaFallback: {{ .Values.podgrouper.genericKartaFallback | toJson }}
  podGroupController:
    service:
      enabled: {{ .Values.podgroupcontroller.enabled | toJson }}
      image:
        name: {{ .Values.podgroupcontroller.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.podgroupcontroller.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.podgroupcontroller.image.pullPolicy | toJson }}
      {{- if .Values.podgroupcontroller.resources }}
      resources: {{ .Values.podgroupcontroller.resources | toJson }}
      {{- end }}
      {{- if .Values.podgroupcontroller.affinity }}
      affinity: {{ .Values.podgroupcontroller.affinity | toJson }}
      {{- end }}
      {{- if .Values.podgroupcontroller.args }}
      args: {{ .Values.podgroupcontroller.args | toJson }}
      {{- end }}
  binder:
    service:
      enabled: {{ .Values.binder.enabled | toJson }}
      image:
        name: {{ .Values.binder.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.binder.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.binder.image.pullPolicy | toJson }}
      {{- if .Values.binder.resources }}
      resources: {{ .Values.binder.resources | toJson }}
      {{- end }}
      {{- if .Values.binder.affinity }}
      affinity: {{ .Values.binder.affinity | toJson }}
      {{- end }}
      podDisruptionBudget:
        enabled: {{ .Values.binder.podDisruptionBudget.enabled | toJson }}
        maxUnavailable: {{ .Values.binder.podDisruptionBudget.maxUnavailable | toJson }}
      {{- if .Values.binder.args }}
      args: {{ .Values.binder.args | toJson }}
      {{- end }}
    metricsPort: {{ .Values.binder.ports.metricsPort | toJson }}
    {{- if hasKey .Values.binder "cdiEnabled" }}
    cdiEnabled: {{ .Values.binder.cdiEnabled | toJson }}
    {{- end }}
    {{- if .Values.binder.plugins }}
    plugins: {{ .Values.binder.plugins | toJson }}
    {{- end }}
    resourceReservation:
      image:
        name: {{ .Values.binder.resourceReservationImage.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.binder.resourceReservationImage) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.binder.resourceReservationImage.pullPolicy | toJson }}
      {{- if .Values.global.resourceReservation.namespace }}
      namespace: {{ .Values.global.resourceReservation.namespace | toJson }}
      {{- end }}
      {{- if .Values.global.resourceReservation.serviceAccount }}
      serviceAccountName: {{ .Values.global.resourceReservation.serviceAccount | toJson }}
      {{- end }}
      {{- if .Values.global.resourceReservation.appLabel }}
      appLabel: {{ .Values.global.resourceReservation.appLabel | toJson }}
      {{- end }}
      {{- if .Values.binder.runtimeClassName }}
      runtimeClassName: {{ .Values.binder.runtimeClassName | toJson }}
      {{- end }}
      {{- if .Values.binder.resourceReservationPodResources }}
      podResources: {{ .Values.binder.resourceReservationPodResources | toJson }}
      {{- end }}
  scheduler:
    service:
      enabled: {{ .Values.scheduler.enabled | toJson }}
      image:
        name: {{ .Values.scheduler.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.scheduler.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.scheduler.image.pullPolicy | toJson }}
      {{- if .Values.scheduler.resources }}
      resources: {{ .Values.scheduler.resources | toJson }}
      {{- end }}
      {{- if .Values.scheduler.affinity }}
      affinity: {{ .Values.scheduler.affinity | toJson }}
      {{- end }}
      podDisruptionBudget:
        enabled: {{ .Values.scheduler.podDisruptionBudget.enabled | toJson }}
        maxUnavailable: {{ .Values.scheduler.podDisruptionBudget.maxUnavailable | toJson }}
    schedulerService:
      port: {{ .Values.scheduler.ports.metricsPort | toJson }}
  queueController:
    service:
      enabled: {{ .Values.queuecontroller.enabled | toJson }}
      image:
        name: {{ .Values.queuecontroller.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.queuecontroller.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.queuecontroller.image.pullPolicy | toJson }}
      {{- if .Values.queuecontroller.resources }}
      resources: {{ .Values.queuecontroller.resources | toJson }}
      {{- end }}
      {{- if .Values.queuecontroller.affinity }}
      affinity: {{ .Values.queuecontroller.affinity | toJson }}
      {{- end }}
      {{- if .Values.queuecontroller.args }}
      args: {{ .Values.queuecontroller.args | toJson }}
      {{- end }}
  admission:
    service:
      enabled: {{ .Values.admission.enabled | toJson }}
      image:
        name: {{ .Values.admission.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.admission.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.admission.image.pullPolicy | toJson }}
      {{- if .Values.admission.resources }}
      resources: {{ .Values.admission.resources | toJson }}
      {{- end }}
      {{- if .Values.admission.affinity }}
      affinity: {{ .Values.admission.affinity | toJson }}
      {{- end }}
      podDisruptionBudget:
        enabled: {{ .Values.admission.podDisruptionBudget.enabled | toJson }}
        maxUnavailable: {{ .Values.admission.podDisruptionBudget.maxUnavailable | toJson }}
      {{- if .Values.admission.args }}
      args: {{ .Values.admission.args | toJson }}
      {{- end }}
    gpuSharing: {{ not (empty (or (and (not .Values.global.gpuSharingMode) .Values.global.gpuSharing) (and .Values.global.gpuSharingMode (not (eq .Values.global.gpuSharingMode "Disabled"))))) | toJson }}
    blockNvidiaVisibleDevices: {{ .Values.global.blockNvidiaVisibleDevices | toJson }}
    queueLabelSelector: {{ .Values.admission.queueLabelSelector | toJson }}
    webhook:
      port: 443
      targetPort: {{ .Values.admission.ports.webhookPort | toJson }}
      probePort: {{ .Values.admission.ports.probePort | toJson }}
      metricsPort: {{ .Values.admission.ports.metricsPort | toJson }}
    {{- if hasKey .Values.admission "gpuFractionRuntimeClassName" }}
    gpuFractionRuntimeClassName: {{ .Values.admission.gpuFractionRuntimeClassName | toJson }}
    {{- end }}
    {{- if and (not (hasKey .Values.admission "gpuFractionRuntimeClassName")) (hasKey .Values.admission "gpuPodRuntimeClassName") }}
    gpuPodRuntimeClassName: {{ .Values.admission.gpuPodRuntimeClassName | toJson }}
    {{- end }}
  nodeScaleAdjuster:
    service:
      enabled: {{ .Values.global.clusterAutoscaling | toJson }}
      image:
        name: {{ .Values.nodescaleadjuster.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.nodescaleadjuster.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.nodescaleadjuster.image.pullPolicy | toJson }}
      {{- if .Values.nodescaleadjuster.resources }}
      resources: {{ .Values.nodescaleadjuster.resources | toJson }}
      {{- end }}
      {{- if .Values.nodescaleadjuster.affinity }}
      affinity: {{ .Values.nodescaleadjuster.affinity | toJson }}
      {{- end }}
      {{- if .Values.nodescaleadjuster.args }}
      args: {{ .Values.nodescaleadjuster.args | toJson }}
      {{- end }}
    args:
      nodeScaleNamespace: {{ .Values.nodescaleadjuster.scalingPodNamespace | toJson }}
      scalingPodImage:
        name: {{ .Values.nodescaleadjuster.scalingPodImage.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.nodescaleadjuster.scalingPodImage) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.nodescaleadjuster.scalingPodImage.pullPolicy | toJson }}
  {{- if .Values.prometheus.enabled }}
  prometheus:
    enabled: true
    {{- if .Values.prometheus.externalPrometheusUrl }}
    externalPrometheusUrl: {{ .Values.prometheus.externalPrometheusUrl | toJson }}
    {{- end }}
    {{- if .Values.prometheus.instanceName }}
    instanceName: {{ .Values.prometheus.instanceName | toJson }}
    {{- end }}
  {{- end }}
  numaPlacementExporter:
    service:
      {{- if hasKey .Values.numaPlacementExporter "enabled" }}
      enabled: {{ .Values.numaPlacementExporter.enabled | toJson }}
      {{- end }}
      image:
        name: {{ .Values.numaPlacementExporter.image.name | toJson }}
        repository: {{ .Values.global.registry | toJson }}
        tag: {{ include "kai-scheduler.tag" (list $ .Values.numaPlacementExporter.image) | toJson }}
        pullPolicy: {{ default .Values.global.imagePullPolicy .Values.numaPlacementExporter.image.pullPolicy | toJson }}
      {{- if .Values.numaPlacementExporter.resources }}
      resources: {{ .Values.numaPlacementExporter.resources | toJson }}
      {{- end }}
      {{- if .Values.numaPlacementExporter.affinity }}
      affinity: {{ .Values.numaPlacementExporter.affinity | toJson }}
      {{- end }}
      {{- if .Values.numaPlacementExporter.args }}
      args: {{ .Values.numaPlacementExporter.args | toJson }}
      {{- end }}
    {{- if .Values.numaPlacementExporter.nodeSelector }}
    nodeSelector: {{ .Values.numaPlacementExporter.nodeSelector | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.tolerations }}
    tolerations: {{ .Values.numaPlacementExporter.tolerations | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.pollInterval }}
    pollInterval: {{ .Values.numaPlacementExporter.pollInterval | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.driftResyncInterval }}
    driftResyncInterval: {{ .Values.numaPlacementExporter.driftResyncInterval | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.podResourcesHostPath }}
    podResourcesHostPath: {{ .Values.numaPlacementExporter.podResourcesHostPath | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.podResourcesSocket }}
    podResourcesSocket: {{ .Values.numaPlacementExporter.podResourcesSocket | toJson }}
    {{- end }}
    {{- if .Values.numaPlacementExporter.sysfsHostPath }}
    sysfsHostPath: {{ .Values.numaPlacementExporter.sysfsHostPath | toJson }}
    {{- end }}
{{- end -}}
