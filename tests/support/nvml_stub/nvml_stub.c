/* A stand-in for libnvidia-ml.so.1: the few functions that slimscale.devices.nvml calls through pynvml.

   What it says is read from the file NVML_STUB_FILE at each call, so that a test can let a GPU get
   lost and come back. One setting a line, "name value":

     init 12                  what nvmlInit returns (0: it works)
     shutdown 1               what nvmlShutdown returns
     devices 2                how many there are
     unknown_after 10         after so many questions about devices each one fails with Unknown (999)
     gpu0.uuid GPU-aaaa
     gpu0.error 15            every question about this device returns that
     gpu0.total / gpu0.free   bytes
     gpu0.utilisation 37      percent
     gpu0.power 71000         milliwatts
     gpu0.memory.error, gpu0.utilisation.error, gpu0.power.error

   Compiled with WITHOUT_UTILISATION it lacks that symbol, as an old driver does. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
enum { MOST_DEVICES = 8 };

typedef struct { int index; } device;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int gpu, memory; } rates;

static device devices[MOST_DEVICES];
static long questions;

/* The value of a setting as text into `out`; 0 when the file does not name it. */
static int setting(const char *name, char *out, size_t size) {
    const char *path = getenv("NVML_STUB_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256], key[128], value[128];
    int found = 0;
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%127s %127s", key, value) == 2 && !strcmp(key, name)) {
            snprintf(out, size, "%s", value);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static unsigned long long number(const char *name, unsigned long long otherwise) {
    char text[128];
    return setting(name, text, sizeof text) ? strtoull(text, NULL, 10) : otherwise;
}

static unsigned long long of_device(int index, const char *name, unsigned long long otherwise) {
    char key[128];
    snprintf(key, sizeof key, "gpu%d.%s", index, name);
    return number(key, otherwise);
}

/* What a question about a device comes to before it is answered. */
static int asked(int index, const char *figure) {
    char key[64];
    unsigned long long limit = number("unknown_after", 0);
    int error = (int)of_device(index, "error", SUCCESS);
    questions++;
    if (limit && (unsigned long long)questions > limit) return UNKNOWN;
    if (error || !figure) return error;
    snprintf(key, sizeof key, "%s.error", figure);
    return (int)of_device(index, key, SUCCESS);
}

int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    for (int i = 0; i < MOST_DEVICES; i++) devices[i].index = i;
    int error = (int)number("init", SUCCESS);
    if (!error) questions = 0;
    return error;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return (int)number("shutdown", SUCCESS); }

const char *nvmlErrorString(int error) {
    (void)error;
    return "said by the stub";
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = (unsigned int)number("devices", 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device **handle) {
    if (index >= number("devices", 1) || index >= MOST_DEVICES) return INVALID_ARGUMENT;
    *handle = &devices[index];
    return asked((int)index, "handle");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device **handle) {
    char key[32], own[128];
    for (unsigned int i = 0; i < number("devices", 1) && i < MOST_DEVICES; i++) {
        snprintf(key, sizeof key, "gpu%u.uuid", i);
        if (setting(key, own, sizeof own) && !strcmp(own, uuid)) {
            *handle = &devices[i];
            return asked((int)i, "handle");
        }
    }
    return NOT_FOUND;
}

int nvmlDeviceGetUUID(device *handle, char *uuid, unsigned int length) {
    char key[32], own[128];
    int error = asked(handle->index, "uuid");
    if (error) return error;
    snprintf(key, sizeof key, "gpu%d.uuid", handle->index);
    if (!setting(key, own, sizeof own)) return UNKNOWN;
    if (strlen(own) >= length) return INSUFFICIENT_SIZE;
    strcpy(uuid, own);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(device *handle, memory *out) {
    int error = asked(handle->index, "memory");
    if (error) return error;
    out->total = of_device(handle->index, "total", 0);
    out->free = of_device(handle->index, "free", 0);
    out->used = out->total - out->free;
    return SUCCESS;
}

#ifndef WITHOUT_UTILISATION
int nvmlDeviceGetUtilizationRates(device *handle, rates *out) {
    int error = asked(handle->index, "utilisation");
    if (error) return error;
    out->gpu = (unsigned int)of_device(handle->index, "utilisation", 0);
    out->memory = 0;
    return SUCCESS;
}
#endif

int nvmlDeviceGetPowerUsage(device *handle, unsigned int *milliwatts) {
    int error = asked(handle->index, "power");
    if (error) return error;
    *milliwatts = (unsigned int)of_device(handle->index, "power", 0);
    return SUCCESS;
}
