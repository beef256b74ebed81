// examples/worker.cc - the elastic worker of worker.c in C++17: handles release themselves, errors
// are exceptions.
//
// Usage: worker-cxx ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]
#include <muster/muster.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

namespace
{

constexpr std::int64_t timeout_ms = 10000;
constexpr auto work_time = std::chrono::milliseconds(20);

// A call that failed.
class Error : public std::runtime_error
{
  public:
    explicit Error(const mst_err &err) : std::runtime_error(err.msg), code(err.code)
    {
    }
    const int code;
};

// check([&](mst_err *err) { return mst_call(…, err); });
template <typename Call> void check(Call call)
{
    mst_err err{};
    if (call(&err) != 0) {
        throw Error(err);
    }
}

template <auto release> struct Release {
    template <typename T> void operator()(T *handle) const
    {
        release(handle);
    }
};
using Params = std::unique_ptr<mst_params, Release<mst_params_free>>;
using Handler = std::unique_ptr<mst_handler, Release<mst_handler_free>>;
using Store = std::unique_ptr<mst_store, Release<mst_store_close>>;

mst_bytes bytes(const std::string &text)
{
    return mst_bytes_of(text.data(), text.size());
}

// Of a round, with a store that closes itself.
struct Round {
    std::int64_t number, rank, world_size;
    Store store;

    void set(const std::string &key, const std::string &value) const
    {
        check([&](mst_err *err) {
            return mst_store_set(store.get(), bytes(key), bytes(value), timeout_ms, err);
        });
    }

    std::string get(const std::string &key) const
    {
        mst_buffer value{};
        check([&](mst_err *err) {
            return mst_store_get(store.get(), bytes(key), timeout_ms, &value, err);
        });
        std::string text(reinterpret_cast<const char *>(value.data), value.size);
        mst_buffer_free(&value);
        return text;
    }

    std::int64_t add(const std::string &key) const
    {
        std::int64_t sum = 0;
        check([&](mst_err *err) {
            return mst_store_add(store.get(), bytes(key), 1, timeout_ms, &sum, err);
        });
        return sum;
    }

    bool has(const std::string &key) const
    {
        bool exists = false;
        const mst_bytes name = bytes(key);
        check([&](mst_err *err) {
            return mst_store_check(store.get(), &name, 1, timeout_ms, &exists, err);
        });
        return exists;
    }
};

// Signal handlers can reach nothing else.
mst_handler *cancelled_by_signal;
volatile std::sig_atomic_t is_stopped;

void on_signal(int)
{
    is_stopped = 1;
    mst_handler_cancel(cancelled_by_signal);
}

enum class News { none, again, closed };

class Worker
{
  public:
    Worker(Handler owned, std::int64_t last) : handler(std::move(owned)), steps(last)
    {
    }

    void run()
    {
        while (!is_stopped) {
            const Round round = join();
            News news = work(round);
            if (step == steps) {
                std::printf("finished at step %lld\n", static_cast<long long>(step));
                check([&](mst_err *err) {
                    return mst_handler_finish(handler.get(), 0, nullptr, err);
                });
                do { // until the others are done, too, or one fails and there is another round
                    news = look(-1);
                } while (news == News::none);
            }
            if (news == News::closed) {
                std::printf("closed\n");
                return;
            }
        }
        std::printf("stopped at step %lld\n", static_cast<long long>(step));
        check([&](mst_err *err) { return mst_handler_leave(handler.get(), err); });
    }

  private:
    Round join()
    {
        mst_rendezvous got;
        mst_rendezvous_init(&got, sizeof got);
        check([&](mst_err *err) { return mst_handler_next(handler.get(), &got, err); });
        return {got.round, got.rank, got.world_size, Store(got.store)};
    }

    // Wait until there is news, or for so long.
    News look(int wait_ms)
    {
        pollfd readable{mst_handler_fd(handler.get()), POLLIN, 0};
        if (poll(&readable, 1, wait_ms) <= 0) {
            return is_stopped ? News::again : News::none;
        }
        mst_changes changes;
        mst_changes_init(&changes, sizeof changes);
        mst_err err{};
        const int rv = mst_handler_poll(handler.get(), 0, &changes, &err);
        if (rv != 0 && rv != MST_ETIMEOUT && !is_stopped) {
            throw Error(err);
        }
        const bool is_over = changes.nodes_waiting > 0 || changes.participants_lost > 0 ||
                             changes.reopened || changes.expelled || is_stopped;
        return changes.closed ? News::closed : is_over ? News::again : News::none;
    }

    News work(const Round &round)
    {
        round.set("from/" + std::to_string(round.rank), std::to_string(step));
        for (std::int64_t rank = 0; rank < round.world_size; rank++) {
            const std::string other = round.get("from/" + std::to_string(rank));
            step = std::max<std::int64_t>(step, std::stoll(other));
        }
        std::printf("round %lld: rank %lld of %lld, from step %lld\n",
                    static_cast<long long>(round.number), static_cast<long long>(round.rank),
                    static_cast<long long>(round.world_size), static_cast<long long>(step));
        std::fflush(stdout);
        News news = News::none;
        while (step < steps && news == News::none) {
            std::this_thread::sleep_for(work_time);
            const std::string done = "done/" + std::to_string(step);
            if (round.add("count/" + std::to_string(step)) == round.world_size) {
                round.set(done, "1");
            }
            bool is_done = false;
            while (!(is_done = round.has(done)) && news == News::none) {
                news = look(5);
            }
            step += is_done ? 1 : 0;
            news = news == News::none && step < steps ? look(0) : news;
        }
        return news;
    }

    Handler handler;
    const std::int64_t steps;
    std::int64_t step = 0;
};

Handler make_handler(char **argv, const char *options)
{
    mst_params *made = nullptr;
    check([&](mst_err *err) { return mst_params_new("muster", argv[2], &made, err); });
    const Params params(made);
    check([&](mst_err *err) { return mst_params_set_endpoint(params.get(), argv[1], err); });
    check([&](mst_err *err) {
        return mst_params_set_nodes(params.get(), std::stoll(argv[3]), std::stoll(argv[4]), err);
    });
    check([&](mst_err *err) { return mst_params_parse(params.get(), options, err); });
    mst_handler *handler = nullptr;
    check([&](mst_err *err) { return mst_handler_new(params.get(), &handler, err); });
    return Handler(handler);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc < 6) {
        std::fprintf(stderr, "Usage: %s ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]\n", argv[0]);
        return 2;
    }
    try {
        Handler handler = make_handler(argv, argc > 6 ? argv[6] : "");
        cancelled_by_signal = handler.get();
        std::signal(SIGINT, on_signal);
        std::signal(SIGTERM, on_signal);
        Worker(std::move(handler), std::stoll(argv[5])).run();
    } catch (const Error &error) {
        if (error.code == MST_EFINISHED || error.code == MST_ESPARE) {
            std::printf("finished by others\n");
            return 0;
        }
        if (error.code == MST_ECANCELED && is_stopped) {
            return 0;
        }
        std::fprintf(stderr, "worker: %s\n", error.what());
        return 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "worker: %s\n", error.what());
        return 2;
    }
    return 0;
}
