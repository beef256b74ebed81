// cxx/test_cxx.cc - the public headers in C++17, with no `struct` before the name of a struct, and
// the shared library behind them. A function with the name of a struct would hide it here.
#include <muster/backend.h>
#include <muster/legacy.h>
#include <muster/muster.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

static int failed;

#define CHECK(condition)                                                                \
    do {                                                                                \
        if (!(condition)) {                                                             \
            failed++;                                                                   \
            std::printf("%s:%d: '%s' does not hold\n", __FILE__, __LINE__, #condition); \
        }                                                                               \
    } while (0)

static constexpr std::int64_t plenty_ms = 60000;

static void store_calls()
{
    mst_err err{};
    mst_store_options options;
    mst_store_options_init(&options, sizeof options);
    mst_store *store = nullptr;
    CHECK(mst_store_open("hash:", &options, plenty_ms, &store, &err) == 0);

    const mst_bytes key = mst_bytes_str("key");
    const mst_bytes value = mst_bytes_of("va\0ue", 5);
    CHECK(mst_store_set(store, key, value, plenty_ms, &err) == 0);
    mst_buffer got{};
    CHECK(mst_store_get(store, key, plenty_ms, &got, &err) == 0);
    CHECK(got.size == 5 && std::memcmp(got.data, "va\0ue", 5) == 0);
    mst_buffer_free(&got);

    mst_compare_set outcome = MST_COMPARE_SET_ABSENT;
    CHECK(mst_store_compare_set(store, key, value, mst_bytes_str("new"), plenty_ms, &outcome,
                                nullptr, &err) == 0);
    CHECK(outcome == MST_COMPARE_SET_DONE);

    mst_keys keys{};
    CHECK(mst_store_list(store, plenty_ms, &keys, &err) == 0);
    CHECK(keys.count == 1 && keys.keys[0].size == 3);
    mst_keys_free(&keys);

    mst_store_stats stats;
    mst_store_stats_init(&stats, sizeof stats);
    CHECK(mst_store_get_stats(store, &stats) == 0);
    CHECK(stats.connects == 0);

    CHECK(mst_store_try_get(store, mst_bytes_str("none"), plenty_ms, &got, &err) == MST_ENOTFOUND);
    CHECK(err.code == MST_ENOTFOUND && std::strlen(err.msg) > 0);
    mst_store_close(store);
}

static void server_calls()
{
    mst_err err{};
    mst_server_options options;
    mst_server_options_init(&options, sizeof options);
    options.log = mst_log{};
    mst_server *server = nullptr;
    CHECK(mst_server_new(&options, &server, &err) == 0);
    if (server == nullptr) {
        return;
    }
    std::thread running([server] {
        mst_err run_err{};
        CHECK(mst_server_run(server, &run_err) == 0);
    });
    const std::string url = "tcp://" + std::string(mst_server_address(server, 0));
    mst_store *store = nullptr;
    CHECK(mst_store_open(url.c_str(), nullptr, plenty_ms, &store, &err) == 0);
    std::int64_t sum = 0;
    CHECK(mst_store_add(store, mst_bytes_str("n"), 3, plenty_ms, &sum, &err) == 0);
    CHECK(sum == 3);
    mst_store_close(store);

    mst_status_list *jobs = nullptr;
    CHECK(mst_status_jobs(mst_server_address(server, 0), plenty_ms, &jobs, &err) == 0);
    CHECK(jobs != nullptr && jobs->job_count == 0);
    mst_status_list_free(jobs);
    mst_params *params = nullptr;
    CHECK(mst_params_new("muster", "none", &params, &err) == 0);
    CHECK(mst_params_set_endpoint(params, mst_server_address(server, 0), &err) == 0);
    mst_status *status = nullptr;
    CHECK(mst_status_job(params, plenty_ms, &status, &err) == 0);
    CHECK(status != nullptr && !status->exists && status->node_count == 0);
    mst_status_free(status);
    mst_params_free(params);
    mst_server_stop(server);
    running.join();
    mst_server_free(server);
}

static void on_event(void *arg, const mst_event *event)
{
    (void)event;
    ++*static_cast<int *>(arg);
}

static void rendezvous_calls()
{
    mst_err err{};
    mst_params *params = nullptr;
    CHECK(mst_params_new("c10d", "cxx", &params, &err) == 0);
    CHECK(mst_params_set_nodes(params, 1, 1, &err) == 0);
    CHECK(mst_params_set_local_addr(params, "localhost", &err) == 0);
    CHECK(mst_params_set(params, "last_call_timeout", "1", &err) == 0);
    int events = 0;
    mst_params_on_event(params, on_event, &events);
    mst_handler *handler = nullptr;
    CHECK(mst_handler_new(params, &handler, &err) == 0);
    mst_rendezvous round;
    mst_rendezvous_init(&round, sizeof round);
    CHECK(mst_handler_next(handler, -1, &round, &err) == 0);
    CHECK(round.rank == 0 && round.world_size == 1);
    mst_store_close(round.store);
    mst_changes changes;
    mst_changes_init(&changes, sizeof changes);
    CHECK(mst_handler_poll(handler, 0, &changes, &err) == MST_ETIMEOUT);
    CHECK(changes.nodes_waiting == 0 && !changes.closed);
    CHECK(std::string(mst_handler_run_id(handler)) == "cxx");
    CHECK(mst_handler_shutdown(handler, &err) == 0);
    mst_handler_free(handler);
    mst_params_free(params);
    CHECK(events > 0);
}

static void other_structs()
{
    mst_etcd_options options;
    mst_etcd_options_init(&options, sizeof options);
    CHECK(std::string(options.host) == "localhost");
    const mst_etcd_server *server = nullptr;
    CHECK(server == nullptr);
    CHECK(mst_version_number() == MST_VERSION_NUMBER);
    CHECK(std::to_string(MST_VERSION_NUMBER / 1000000) + "." +
              std::to_string(MST_VERSION_NUMBER / 1000 % 1000) + "." +
              std::to_string(MST_VERSION_NUMBER % 1000) ==
          mst_version());
}

// A program that is newer than the library: it may ask for nothing that the library does not know.
struct newer_options {
    mst_server_options known;
    int unknown;
};

static void newer_caller()
{
    mst_err err{};
    newer_options options;
    std::memset(&options, 0xff, sizeof options);
    mst_server_options_init(&options.known, sizeof options);
    CHECK(options.known.size == sizeof options && options.unknown == 0);
    mst_server *server = nullptr;
    CHECK(mst_server_new(&options.known, &server, &err) == 0);
    mst_server_free(server);
    options.unknown = 1;
    CHECK(mst_server_new(&options.known, &server, &err) == MST_ENOTSUP);
    CHECK(std::strstr(err.msg, "mst_server_options") != nullptr);
}

static int failing_next(void *self, int64_t timeout_ms, mst_rendezvous *ret, mst_err *reterr)
{
    (void)timeout_ms;
    (void)self;
    (void)ret;
    *reterr = mst_err{};
    reterr->code = MST_ECLOSED;
    return MST_ECLOSED;
}

static void count_free(void *self)
{
    ++*static_cast<int *>(self);
}

static void own_backend()
{
    mst_err err{};
    int freed = 0;
    mst_handler_ops ops;
    mst_handler_ops_init(&ops, sizeof ops);
    ops.next = failing_next;
    ops.free = count_free;
    mst_handler *handler = nullptr;
    CHECK(mst_handler_wrap(&ops, &freed, &handler, &err) == 0);
    mst_rendezvous round;
    mst_rendezvous_init(&round, sizeof round);
    CHECK(mst_handler_next(handler, -1, &round, &err) == MST_ECLOSED);
    CHECK(err.domain == MST_DOMAIN_NONE);
    mst_buffer json{};
    CHECK(mst_handler_get_extra(handler, "a", 0, &json, &err) == MST_ENOTSUP);
    mst_handler_free(handler);
    CHECK(freed == 1);
}

int main()
{
    static void (*const tests[])() = {store_calls,   server_calls, rendezvous_calls,
                                      other_structs, newer_caller, own_backend};
    int broken = 0;
    int passed = 0;
    for (const auto test : tests) {
        const int before = failed;
        test();
        (failed == before ? passed : broken)++;
    }
    std::printf("%d passed, %d failed, 0 skipped\n", passed, broken);
    return broken == 0 ? 0 : 1;
}
