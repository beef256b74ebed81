/* unit/round_suite.h - the duties of all backends to a program with its own loop: rounds that
 * are begun, taken, abandoned and cancelled. */
#ifndef MST_UNIT_ROUND_SUITE_H
#define MST_UNIT_ROUND_SUITE_H

#include "unit/node_unit.h"

#include <muster/status.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void assert_nothing_to_take(struct mst_handler *handler)
{
    struct mst_notice *notice = NULL;
    assert_fails(mst_handler_take(handler, 0, &notice, &err), MST_ETIMEOUT, "nothing");
}

/* An unreachable authority is a notice that names @where, and no error of a look. */
static inline void assert_unreachable(struct mst_handler *handler, const char *where)
{
    struct mst_notice *notice = take_notice(handler, MST_NOTICE_UNREACHABLE);
    assert_true(notice->err.code != 0);
    assert_non_null(strstr(notice->err.msg, where));
    mst_notice_free(notice);
    bool is_closed = true;
    int64_t waiting = -1;
    assert_ok(mst_handler_is_closed(handler, &is_closed, &err));
    assert_ok(mst_handler_nodes_waiting(handler, &waiting, &err));
    assert_false(is_closed);
    assert_int_equal(waiting, 0);
}

/* Waiting for the begun round returns @code, and says whether it @is_over. */
static inline void assert_awaits(struct mst_handler *handler,
                                 int64_t timeout_ms,
                                 int code,
                                 bool is_over)
{
    bool was_over = !is_over;
    assert_int_equal(mst_handler_await(handler, timeout_ms, &was_over, &err), code);
    assert_int_equal(was_over, is_over);
}

static inline void suite_abandon(struct mst_handler *handler)
{
    struct mst_rendezvous round = {.size = sizeof round};
    struct mst_status *status = NULL;
    assert_fails(mst_handler_round(handler, &round, &err), MST_EINVAL, "no round");
    assert_fails(mst_handler_members(handler, PLENTY_MS, &status, &err), MST_EINVAL, "no round");
    assert_ok(mst_handler_abandon(handler, &err)); /* nothing is begun */
    assert_awaits(handler, 0, MST_EINVAL, true);
    assert_ok(mst_handler_connect(handler, PLENTY_MS, &err));
    assert_ok(mst_handler_begin(handler, -1, &err));
    assert_ok(mst_handler_begin(handler, 1, &err)); /* changes nothing */
    assert_ok(mst_handler_connect(handler, 0, &err));
    assert_awaits(handler, 0, MST_ETIMEOUT, false);
    assert_awaits(handler, 5, MST_ETIMEOUT, false);
    mst_handler_cancel(handler);
    assert_awaits(handler, PLENTY_MS, MST_ECANCELED, false);
    assert_awaits(handler, 1, MST_ETIMEOUT, false); /* still begun */
    assert_ok(mst_handler_abandon(handler, &err));
    assert_nothing_to_take(handler);
    assert_false(fd_is_readable(handler, 0));
}

/* Each node knows the members of the round, by rank. */
static inline void suite_members(struct mst_handler *handlers[2], struct mst_rendezvous rounds[2])
{
    for (int i = 0; i < 2; i++) {
        struct mst_status *status = NULL;
        if (strcmp(mst_handler_backend(handlers[i]), "static") == 0) {
            assert_fails(mst_handler_members(handlers[i], PLENTY_MS, &status, &err), MST_ENOTSUP,
                         "static");
            continue;
        }
        assert_ok(mst_handler_members(handlers[i], PLENTY_MS, &status, &err));
        assert_int_equal(status->node_count, 2);
        for (int other = 0; other < 2; other++) {
            const struct mst_status_node *node = status->nodes[rounds[other].rank];
            assert_int_equal(node->rank, rounds[other].rank);
            assert_string_equal(node->name, mst_handler_node(handlers[other]));
        }
        mst_status_free(status);
    }
}

/* Both enter a round of two. */
static inline void suite_meet(struct mst_handler *handlers[2])
{
    struct mst_rendezvous rounds[2] = {{.size = sizeof rounds[0]}, {.size = sizeof rounds[1]}};
    struct mst_rendezvous again = {.size = sizeof again};
    for (int i = 0; i < 2; i++) {
        assert_ok(mst_handler_begin(handlers[i], -1, &err));
    }
    for (int i = 0; i < 2; i++) {
        assert_true(fd_is_readable(handlers[i], PLENTY_MS));
        struct mst_notice *notice = NULL;
        assert_ok(mst_handler_take(handlers[i], PLENTY_MS, &notice, &err));
        assert_int_equal(notice->kind, MST_NOTICE_COMPLETE);
        assert_ok(mst_handler_round(handlers[i], &rounds[i], &err));
        assert_int_equal(notice->round, rounds[i].round);
        assert_int_equal(rounds[i].world_size, 2);
        mst_notice_free(notice);
    }
    assert_int_equal(rounds[0].rank + rounds[1].rank, 1);
    suite_members(handlers, rounds);
    /* Each time with a store of its own. */
    assert_ok(mst_handler_round(handlers[0], &again, &err));
    assert_ok(mst_store_set(rounds[0].store, STR("k"), STR("v"), PLENTY_MS, &err));
    mst_store_close(rounds[0].store);
    assert_value(again.store, "k", STR("v"));
    assert_value(rounds[1].store, "k", STR("v"));
    mst_store_close(again.store);
    mst_store_close(rounds[1].store);
}

/* A cancellation ends one call that would block, and the handler lives on. */
static inline void suite_cancel(struct mst_handler *handler)
{
    struct mst_notice *notice = NULL;
    struct mst_changes changes = {.size = sizeof changes};
    mst_handler_cancel(handler);
    assert_nothing_to_take(handler); /* does not block */
    assert_fails(mst_handler_take(handler, PLENTY_MS, &notice, &err), MST_ECANCELED, "");
    assert_fails(mst_handler_take(handler, 1, &notice, &err), MST_ETIMEOUT, "");
    mst_handler_cancel(handler);
    assert_fails(mst_handler_poll(handler, PLENTY_MS, &changes, &err), MST_ECANCELED, "");
    assert_fails(mst_handler_poll(handler, 1, &changes, &err), MST_ETIMEOUT, "");
}

/* A child has no use for it, and does not take it from the parent. */
static inline void suite_fork(struct mst_handler *handler)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct mst_err told = {0};
        bool is_over = false;
        bool is_refused = mst_handler_begin(handler, -1, &told) == MST_EINVAL &&
                          strstr(told.msg, "another process") != NULL &&
                          mst_handler_await(handler, 0, &is_over, &told) == MST_EINVAL &&
                          mst_handler_connect(handler, 0, &told) == MST_EINVAL &&
                          mst_handler_leave(handler, &told) == MST_EINVAL &&
                          mst_handler_members(handler, 0, NULL, &told) == MST_EINVAL &&
                          mst_handler_fd(handler) == -1;
        mst_handler_free(handler);
        _exit(is_refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* The second node does not come back: the first is told in time, in each way. */
static inline void suite_too_late(struct mst_handler *handler)
{
    assert_ok(mst_handler_begin(handler, 300, &err));
    struct mst_notice *notice = take_notice(handler, MST_NOTICE_FAILED);
    assert_int_equal(notice->err.code, MST_ETIMEOUT);
    mst_notice_free(notice);
    assert_awaits(handler, 0, MST_ETIMEOUT, true); /* also later */
    assert_ok(mst_handler_begin(handler, 300, &err));
    assert_awaits(handler, PLENTY_MS, MST_ETIMEOUT, true);
    assert_nothing_to_take(handler);
    assert_ok(mst_handler_begin(handler, 300, &err));
    assert_true(fd_is_readable(handler, PLENTY_MS));
    assert_ok(mst_handler_abandon(handler, &err)); /* before it was told */
    assert_nothing_to_take(handler);
}

/* A complete round of which the first node has not been told is abandoned. */
static inline void suite_abandon_untold(struct mst_handler *handlers[2])
{
    struct mst_rendezvous round = {.size = sizeof round};
    for (int i = 0; i < 2; i++) {
        assert_ok(mst_handler_begin(handlers[i], -1, &err));
    }
    mst_notice_free(take_notice(handlers[1], MST_NOTICE_COMPLETE));
    assert_true(fd_is_readable(handlers[0], PLENTY_MS));
    assert_ok(mst_handler_abandon(handlers[0], &err));
    assert_nothing_to_take(handlers[0]);
    if (strcmp(mst_handler_backend(handlers[0]), "static") != 0) { /* there is nothing to leave */
        assert_fails(mst_handler_round(handlers[0], &round, &err), MST_EINVAL, "no round");
    }
}

/* Both enter a round of two and wait for it; no notice is left. */
static inline void suite_await(struct mst_handler *handlers[2])
{
    struct mst_rendezvous round = {.size = sizeof round};
    for (int i = 0; i < 2; i++) {
        assert_ok(mst_handler_begin(handlers[i], -1, &err));
    }
    for (int i = 0; i < 2; i++) {
        assert_awaits(handlers[i], PLENTY_MS, 0, true);
        assert_ok(mst_handler_round(handlers[i], &round, &err));
        mst_store_close(round.store);
        struct mst_notice *notice = NULL;
        while (mst_handler_take(handlers[i], 0, &notice, &err) == 0) {
            assert_int_not_equal(notice->kind, MST_NOTICE_COMPLETE);
            mst_notice_free(notice);
        }
    }
}

/* Two handlers of one rendezvous of two nodes; they are freed. */
static inline void round_suite(struct mst_handler *first, struct mst_handler *second)
{
    struct mst_handler *handlers[] = {first, second};
    suite_abandon(first);
    suite_await(handlers);
    suite_abandon_untold(handlers);
    suite_meet(handlers);
    suite_cancel(first);
    suite_fork(first);
    suite_too_late(first);
    for (int i = 0; i < 2; i++) {
        mst_handler_free(handlers[i]);
    }
}

#endif /* MST_UNIT_ROUND_SUITE_H */
