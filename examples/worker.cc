// examples/worker.cc - the elastic worker of worker.c in C++17: handles release themselves, errors
// are exceptions.
//
// Usage: worker-cxx ENDPOINT RUN_ID MIN MAX STEPS [OPTIONS]
#include <muster/muster.h>
#include <poll.h>
#include <unistd.h>

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
using Notice = std::unique_ptr<mst_notice, Release<mst_notice_free>>;
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

// Signals become bytes in a pipe, which can be polled for.
int signals[2];

void on_signal(int number)
{
    const char byte = static_cast<char>(number);
    if (write(signals[1], &byte, 1) < 0) {
        // It is full of signals, so one more is not needed.
    }
}

enum class News { none, joined, again, closed, stopped };

class Worker
{
  public:
    Worker(Handler owned, std::int64_t last) : handler(std::move(owned)), steps(last)
    {
    }

    void run()
    {
        News news = News::again;
        while (news == News::again) {
            check([&](mst_err *err) { return mst_handler_begin(handler.get(), -1, err); });
            do {
                news = look(-1);
            } while (news == News::again); // one that is not complete yet may be over, too
            news = news == News::joined ? work(round()) : news;
        }
        if (news == News::stopped) {
            std::printf("stopped at step %lld\n", static_cast<long long>(step));
            check([&](mst_err *err) { return mst_handler_leave(handler.get(), err); });
        } else {
            std::printf("closed\n");
        }
    }

  private:
    Round round() const
    {
        mst_rendezvous got;
        mst_rendezvous_init(&got, sizeof got);
        check([&](mst_err *err) { return mst_handler_round(handler.get(), &got, err); });
        return {got.round, got.rank, got.world_size, Store(got.store)};
    }

    static News understand(const mst_notice &notice)
    {
        switch (notice.kind) {
            case MST_NOTICE_COMPLETE:
                return News::joined;
            case MST_NOTICE_FAILED:
                if (notice.err.code == MST_EFINISHED || notice.err.code == MST_ESPARE) {
                    return News::closed;
                }
                throw Error(notice.err);
            case MST_NOTICE_LOST:
                std::for_each(notice.nodes, notice.nodes + notice.node_count,
                              [](const mst_node &node) { std::printf("lost: %s\n", node.name); });
                return News::again;
            case MST_NOTICE_WAITING:
            case MST_NOTICE_REOPENED:
            case MST_NOTICE_EXPELLED:
                return News::again;
            case MST_NOTICE_CLOSED:
                return News::closed;
            default: // the server is away for a while, or a kind of a later release
                return News::none;
        }
    }

    // Wait for news, for at most so long; -1 = until there is some.
    News look(int wait_ms) const
    {
        News news = News::none;
        do {
            pollfd fds[] = {{mst_handler_fd(handler.get()), POLLIN, 0}, {signals[0], POLLIN, 0}};
            poll(fds, 2, wait_ms);
            if (fds[1].revents != 0) {
                return News::stopped;
            }
            mst_notice *taken = nullptr;
            while (news == News::none && mst_handler_take(handler.get(), 0, &taken, nullptr) == 0) {
                const Notice notice(taken);
                news = understand(*notice);
            }
        } while (news == News::none && wait_ms < 0);
        return news;
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
        while (step < steps) {
            const News news = do_step(round);
            if (news != News::none) {
                return news;
            }
        }
        std::printf("finished at step %lld\n", static_cast<long long>(step));
        check([&](mst_err *err) { return mst_handler_finish(handler.get(), 0, nullptr, err); });
        return look(-1); // until all are done; if one of them fails, there is another round
    }

    // One step of work, at whose end all nodes of the round meet.
    News do_step(const Round &round)
    {
        std::this_thread::sleep_for(work_time);
        const std::string done = "done/" + std::to_string(step);
        if (round.add("count/" + std::to_string(step)) == round.world_size) {
            round.set(done, "1");
        }
        while (!round.has(done)) {
            const News news = look(5);
            if (news != News::none) {
                return news;
            }
        }
        step++;
        return step < steps ? look(0) : News::none;
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
    if (pipe(signals) != 0) {
        std::perror("pipe");
        return 1;
    }
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    try {
        Worker(make_handler(argv, argc > 6 ? argv[6] : ""), std::stoll(argv[5])).run();
    } catch (const Error &error) {
        std::fprintf(stderr, "worker: %s: %s\n", mst_errname(error.code), error.what());
        return 1;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "worker: %s\n", error.what());
        return 2;
    }
    return 0;
}
