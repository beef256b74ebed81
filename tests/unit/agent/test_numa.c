/* unit/agent/test_numa.c - CPUs of workers and the devices of a machine, from trees like /sys,
 * /proc and /dev. */
#include <ftw.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/devices.h"
#include "agent/numa.h"
#include "unit/unit.h"

static char root[100] = "/tmp/muster-numa-XXXXXX";

/* A file below the root, at the path that @format makes. */
static void put(const char *text, const char *format, ...) MST_PRINTF(2, 3);
static void put(const char *text, const char *format, ...)
{
    char whole[PATH_MAX];
    int used = snprintf(whole, sizeof whole, "%s/", root);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(whole + used, sizeof whole - (size_t)used, format, args);
    va_end(args);
    for (char *at = strchr(whole + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void put_gpu(const char *address, const char *node)
{
    put("0x10de\n", "sys/bus/pci/devices/%s/vendor", address);
    put("0x030200\n", "sys/bus/pci/devices/%s/class", address);
    put(node, "sys/bus/pci/devices/%s/numa_node", address);
}

static void put_cpu(int cpu, int package)
{
    static const char *const caches[][2] = {{"Data", "1"}, {"Instruction", "9"}, {"Unified", "2"}};
    char siblings[50];
    (void)snprintf(siblings, sizeof siblings, "%d,%d\n", cpu % 8, cpu % 8 + 8);
    put(package == 0 ? "0\n" : "1\n", "sys/devices/system/cpu/cpu%d/topology/physical_package_id",
        cpu);
    put(siblings, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    for (int i = 0; i < 3; i++) {
        put(caches[i][0], "sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
        put(caches[i][1], "sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
        put(siblings, "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, i);
    }
}

/* Two sockets of two NUMA nodes each, of two cores with two threads: CPU n and n + 8 are a core,
 * and share a cache of the second level. */
static int start(void **state)
{
    (void)state;
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    put("0-3\n", "sys/devices/system/node/online");
    for (int node = 0; node < 4; node++) {
        char list[50];
        (void)snprintf(list, sizeof list, "%d-%d,%d-%d\n", 2 * node, 2 * node + 1, 8 + 2 * node,
                       9 + 2 * node);
        put(list, "sys/devices/system/node/node%d/cpulist", node);
        for (int i = 0; i < 4; i++) {
            put_cpu(2 * node + i % 2 + i / 2 * 8, node / 2);
        }
    }
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static int stop(void **state)
{
    (void)state;
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The CPUs of worker @rank of @nproc among @allowed, as a list. */
static const char *cpus(enum mst__numa_mode mode, int rank, int nproc, const char *allowed)
{
    static char text[200];
    struct mst__cpu_set may;
    struct mst__cpu_set set;
    struct mst_err err;
    assert_true(mst__cpu_set_parse(allowed, &may));
    int rv = mst__numa_cpus(root, mode, rank, nproc, &may, &set, &err);
    text[0] = '\0';
    if (rv != 0) {
        (void)snprintf(text, sizeof text, "%s", err.msg);
        return text;
    }
    for (size_t cpu = 0; cpu < 64; cpu++) {
        size_t used = strlen(text);
        if (mst__cpu_set_has(&set, cpu)) {
            (void)snprintf(text + used, sizeof text - used, "%s%zu", used == 0 ? "" : ",", cpu);
        }
    }
    return text;
}

static void lists(void **state)
{
    (void)state;
    struct mst__cpu_set set;
    assert_true(mst__cpu_set_parse("0-3,8,10-11\n", &set));
    assert_int_equal(mst__cpu_set_count(&set), 7);
    assert_true(mst__cpu_set_has(&set, 11));
    assert_false(mst__cpu_set_has(&set, 9));
    assert_true(mst__cpu_set_parse("", &set));
    static const char *const wrong[] = {"a", "3-1", "1-", "-1", "99999", "1,,2"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_false(mst__cpu_set_parse(wrong[i], &set));
    }
    mst__cpu_set_allowed(&set);
    assert_true(mst__cpu_set_count(&set) > 0);
    assert_int_equal(mst__cpu_set_bind(&set), 0);
}

static void without_gpus(void **state)
{
    (void)state;
    assert_string_equal(cpus(MST_NUMA_NODE, 0, 4, "0-15"), "0,1,8,9");
    assert_string_equal(cpus(MST_NUMA_NODE, 3, 4, "0-15"), "6,7,14,15");
    assert_string_equal(cpus(MST_NUMA_NODE, 1, 8, "0-15"), "0,1,8,9");
    assert_string_equal(cpus(MST_NUMA_NODE, 0, 1, "2-3"), "2,3");
    assert_string_equal(cpus(MST_NUMA_SOCKET, 0, 2, "0-15"), "0,1,2,3,8,9,10,11");
    assert_string_equal(cpus(MST_NUMA_SOCKET, 1, 2, "0-15"), "4,5,6,7,12,13,14,15");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 0, 8, "0-15"), "0,8");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 1, 8, "0-15"), "1,9");
    assert_string_equal(cpus(MST_NUMA_CORE_COMPLEX, 1, 8, "0-15"), "1,9");
    assert_string_equal(cpus(MST_NUMA_CORE_COMPLEX, 2, 12, "0-15"), "0,8");
    assert_non_null(strstr(cpus(MST_NUMA_EXCLUSIVE, 0, 12, "0-15"), "fewer cores"));
    assert_string_equal(cpus(MST_NUMA_OFF, 0, 12, "1-2"), "1,2");
}

/* Five cores of one thread: 0 and 1 share a cache, and so do 2, 3 and 4. The list of a CPU's caches
 * has the last one in the middle. */
static void uneven(void **state)
{
    (void)state;
    static const char *const caches[][2] = {{"Data", "1"}, {"Unified", "3"}, {"Unified", "2"}};
    size_t size = strlen(root);
    (void)snprintf(root + size, sizeof root - size, "/uneven");
    put("0\n", "sys/devices/system/node/online");
    put("0-4\n", "sys/devices/system/node/node0/cpulist");
    for (int cpu = 0; cpu < 5; cpu++) {
        char self[20];
        (void)snprintf(self, sizeof self, "%d\n", cpu);
        put(self, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        for (int i = 0; i < 3; i++) {
            const char *shared = i != 1 ? self : cpu < 2 ? "0-1\n" : "2-4\n";
            put(caches[i][0], "sys/devices/system/cpu/cpu%d/cache/index%d/type", cpu, i);
            put(caches[i][1], "sys/devices/system/cpu/cpu%d/cache/index%d/level", cpu, i);
            put(shared, "sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu, i);
        }
    }
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 0, 2, "0-4"), "0,1,2");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 1, 2, "0-4"), "3,4");
    assert_string_equal(cpus(MST_NUMA_CORE_COMPLEX, 0, 2, "0-4"), "2,3,4");
    assert_string_equal(cpus(MST_NUMA_CORE_COMPLEX, 1, 2, "0-4"), "0,1");
    root[size] = '\0';
}

static void near_gpus(void **state)
{
    (void)state;
    put_gpu("0000:81:00.0", "2\n");
    put_gpu("0000:01:00.0", "1\n");
    put_gpu("0000:41:00.0", "1\n");
    put_gpu("0000:c1:00.0", "-1\n");
    /* The sound device of the first one. */
    put("0x10de\n", "sys/bus/pci/devices/0000:01:00.1/vendor");
    put("0x040300\n", "sys/bus/pci/devices/0000:01:00.1/class");
    put("1\n", "sys/bus/pci/devices/0000:01:00.1/numa_node");
    assert_string_equal(cpus(MST_NUMA_NODE, 0, 4, "0-15"), "2,3,10,11");
    assert_string_equal(cpus(MST_NUMA_NODE, 2, 4, "0-15"), "4,5,12,13");
    assert_string_equal(cpus(MST_NUMA_NODE, 3, 4, "0-15"), "0,1,8,9");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 0, 4, "0-15"), "2,10");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 1, 4, "0-15"), "3,11");
    assert_string_equal(cpus(MST_NUMA_EXCLUSIVE, 2, 4, "0-15"), "4,5,12,13");
    assert_non_null(strstr(cpus(MST_NUMA_NODE, 2, 4, "0-3"), "may be used by local rank 2"));
}

static struct mst__machine find(int64_t affinity, const char *const *entries)
{
    struct mst__machine machine;
    const struct mst__devices_place place = {
        .root = root, .environment = mst__env_entries(entries), .affinity_cpus = affinity};
    mst__devices_find(&place, &machine);
    return machine;
}

static void devices(void **state)
{
    (void)state;
    const char *const none[] = {NULL};
    const char *const some[] = {"CUDA_VISIBLE_DEVICES=3,GPU-x,-1,4", NULL};
    const char *const empty[] = {"CUDA_VISIBLE_DEVICES=", NULL};
    put("", "dev/nvidia0");
    put("", "dev/nvidia11");
    put("", "dev/nvidiactl");
    put("", "dev/nvidia-uvm");
    struct mst__machine machine = find(6, none);
    assert_int_equal(machine.gpus, 2);
    assert_int_equal(machine.cpus, 6);
    assert_string_equal(machine.cpus_origin, "affinity");
    assert_int_equal(find(6, some).gpus, 2);
    assert_int_equal(find(6, empty).gpus, 0);
    /* The second version of cgroups: the strictest above us counts, rounded up. */
    put("0::/pod/box\n", "proc/self/cgroup");
    put("max 100000\n", "sys/fs/cgroup/pod/box/cpu.max");
    put("250000 100000\n", "sys/fs/cgroup/pod/cpu.max");
    assert_int_equal(find(6, none).cpus, 3);
    assert_int_equal(find(2, none).cpus, 2);
    assert_string_equal(find(6, none).cpus_origin, "quota of the cgroup");
    /* The first one. */
    put("5:cpuset:/x\n4:cpu,cpuacct:/docker/a\n", "proc/self/cgroup");
    put("150000\n", "sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us");
    put("100000\n", "sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us");
    assert_int_equal(find(6, none).cpus, 2);
    put("-1\n", "sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us");
    assert_int_equal(find(6, none).cpus, 6);
    assert_true(find(0, none).cpus > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),     cmocka_unit_test(without_gpus), cmocka_unit_test(uneven),
        cmocka_unit_test(near_gpus), cmocka_unit_test(devices),
    };
    return mst__unit_end(sizeof tests / sizeof tests[0],
                         cmocka_run_group_tests(tests, start, stop));
}
