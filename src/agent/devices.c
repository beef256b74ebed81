/* agent/devices.c - counts CPUs and GPUs. */
#include "agent/devices.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/numa.h"
#include "base/clock.h"
#include "base/number.h"

#define HOSTNAME_SIZE 256

/* Read the beginning of a small file below @root; "" if it cannot be read. */
static const char *read_line(const char *root, const char *path, char *ret_text, size_t size)
{
    char whole[PATH_MAX];
    ret_text[0] = '\0';
    (void)snprintf(whole, sizeof whole, "%s%s", root, path);
    int fd = open(whole, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, ret_text, size - 1);
    if (fd >= 0) {
        (void)close(fd); /* it was only read */
    }
    ret_text[length > 0 ? length : 0] = '\0';
    return ret_text;
}

/* Returns the number of CPUs for @quota per @period, rounded up; INT64_MAX = no bound. */
static int64_t quota_cpus(const char *quota, const char *period)
{
    int64_t quota_us = 0;
    int64_t period_us = 0;
    if (!mst__number_parse_prefix(mst_bytes_str(quota), &quota_us) || quota_us <= 0 ||
        !mst__number_parse_prefix(mst_bytes_str(period), &period_us) || period_us <= 0) {
        return INT64_MAX;
    }
    return quota_us / period_us + (quota_us % period_us != 0 ? 1 : 0);
}

/* cgroup version 2: `cpu.max` of our group and of all groups above it are bounds. */
static int64_t cgroup2_cpus(const char *root, char *group)
{
    int64_t cpus = INT64_MAX;
    for (;;) {
        char path[PATH_MAX];
        char text[128];
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", group);
        (void)read_line(root, path, text, sizeof text);
        cpus = mst__min(cpus, quota_cpus(text, text + strcspn(text, " ")));
        char *slash = strrchr(group, '/');
        if (slash == NULL) {
            return cpus;
        }
        *slash = '\0';
    }
}

static int64_t cgroup1_cpus(const char *root, const char *group)
{
    int64_t cpus = INT64_MAX;
    const char *const places[] = {"", group};
    for (size_t i = 0; i < 2; i++) {
        char path[PATH_MAX];
        char quota[64];
        char period[64];
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", places[i]);
        (void)read_line(root, path, quota, sizeof quota);
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", places[i]);
        (void)read_line(root, path, period, sizeof period);
        cpus = mst__min(cpus, quota_cpus(quota, period));
    }
    return cpus;
}

static bool lists_cpu(const char *controllers)
{
    for (const char *at = controllers; *at != '\0';) {
        size_t size = strcspn(at, ",");
        if (size == 3 && strncmp(at, "cpu", 3) == 0) {
            return true;
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return false;
}

/* Lines of /proc/self/cgroup are `ID:CONTROLLERS:PATH`. Version 2 has no controllers there. */
static int64_t cgroup_cpus(const char *root)
{
    char text[4096];
    (void)read_line(root, "/proc/self/cgroup", text, sizeof text);
    int64_t cpus = INT64_MAX;
    char *next = NULL;
    for (char *line = text; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        controllers++;
        if (strcmp(path, "/") == 0) {
            *path = '\0';
        }
        if (*controllers == '\0') {
            cpus = mst__min(cpus, cgroup2_cpus(root, path));
        } else if (lists_cpu(controllers)) {
            cpus = mst__min(cpus, cgroup1_cpus(root, path));
        }
    }
    return cpus;
}

/* Count the entries before the first one at which CUDA stops. */
static int64_t count_listed(const char *list)
{
    int64_t count = 0;
    for (const char *at = list; *at != '\0';) {
        size_t size = strcspn(at, ",");
        if (size == 0 || strncmp(at, "-1", 2) == 0 || strncmp(at, "NoDevFiles", 10) == 0) {
            break;
        }
        count++;
        at += size + (at[size] == ',' ? 1 : 0);
    }
    return count;
}

static int64_t count_nodes(const char *root)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/dev", root);
    DIR *directory = opendir(path);
    int64_t count = 0;
    for (struct dirent *entry = NULL; directory != NULL && (entry = readdir(directory)) != NULL;) {
        const char *digits = entry->d_name + 6;
        bool is_gpu = strncmp(entry->d_name, "nvidia", 6) == 0 && *digits != '\0' &&
                      strspn(digits, "0123456789") == strlen(digits);
        count += is_gpu ? 1 : 0;
    }
    if (directory != NULL) {
        (void)closedir(directory); /* it was only read */
    }
    return count;
}

void mst__devices_find(const struct mst__devices_place *place, struct mst__machine *ret_machine)
{
    static char hostname[HOSTNAME_SIZE];
    if (hostname[0] == '\0' && gethostname(hostname, sizeof hostname - 1) != 0) {
        (void)snprintf(hostname, sizeof hostname, "localhost");
    }
    struct mst__cpu_set allowed;
    int64_t affinity = place->affinity_cpus;
    if (affinity == 0) {
        mst__cpu_set_allowed(&allowed);
        affinity = (int64_t)mst__cpu_set_count(&allowed);
    }
    int64_t quota = cgroup_cpus(place->root);
    const char *list = place->environment.get(place->environment.arg, "CUDA_VISIBLE_DEVICES");
    *ret_machine = (struct mst__machine){
        .cpus = affinity > 0 ? mst__min(affinity, quota) : 1,
        .cpus_origin = quota < affinity ? "quota of the cgroup" : "affinity",
        .gpus = list != NULL ? count_listed(list) : count_nodes(place->root),
        .gpus_origin = list != NULL ? "CUDA_VISIBLE_DEVICES" : "/dev/nvidia*",
        .hostname = hostname,
    };
    mst__clock_random(ret_machine->random, sizeof ret_machine->random);
}
