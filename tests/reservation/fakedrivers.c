/* The libraries of two drivers, as far as the reservation program calls them: `cc -shared -DNVML` or `-DAMD`.

   FAKE_GPUS lists UUIDs, separated by commas; behind "@" the PCI address of AMD's, in hexadecimal.  FAKE_STATUS is what
   starting the library returns; "hang" keeps it from returning. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16

static char gpus[MOST][64];
static uint64_t addresses[MOST];
static unsigned count;

static int start(void) {
    const char *status = getenv("FAKE_STATUS");
    if (status && !strcmp(status, "hang"))
        for (;;) pause();
    if (status && atoi(status)) return atoi(status);
    const char *listed = getenv("FAKE_GPUS");
    for (count = 0; listed && *listed && count < MOST; count++) {
        size_t length = strcspn(listed, ",");
        snprintf(gpus[count], sizeof gpus[count], "%.*s", (int)length, listed);
        char *at = strchr(gpus[count], '@');
        if (at) {
            *at = 0;
            addresses[count] = strtoull(at + 1, 0, 16);
        }
        listed += length + (listed[length] == ',');
    }
    return 0;
}

#ifdef NVML
/* A handle is the number of the device, plus one. */
int nvmlInitWithFlags(unsigned flags) { (void)flags; return start(); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *answer) { *answer = count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    if (index >= count) return 2;
    *handle = (void *)(uintptr_t)(index + 1);
    return 0;
}
int nvmlDeviceGetUUID(void *handle, char *answer, unsigned length) {
    snprintf(answer, length, "%s", gpus[(uintptr_t)handle - 1]);
    return 0;
}
const char *nvmlErrorString(int status) { (void)status; return "injected"; }
#endif

#ifdef AMD
/* A socket for each GPU, as on real machines; handles are the address of its text. */
int amdsmi_init(uint64_t flags) { return flags == 2 ? start() : 1; }
int amdsmi_shut_down(void) { return 0; }
int amdsmi_get_socket_handles(uint32_t *number, void **sockets) {
    if (sockets)
        for (unsigned each = 0; each < *number; each++) sockets[each] = gpus[each];
    *number = count;
    return 0;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *number, void **processors) {
    if (processors) processors[0] = socket;
    *number = 1;
    return 0;
}
int amdsmi_get_gpu_device_uuid(void *gpu, unsigned *length, char *answer) {
    if (*length < 38) return 1;
    snprintf(answer, *length, "%s", (char *)gpu);
    return 0;
}
int amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *answer) {
    *answer = addresses[((char (*)[64])gpu) - gpus];
    return 0;
}
#endif
