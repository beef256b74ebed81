/* unit/authority/test_muster_linger.c - a node that serves other jobs stays for them at its end. */
#include <stdio.h>
#include <string.h>

#include "unit/node_unit.h"

#define ALONE "last_call_timeout=1ms,keep_alive_interval=60,join_timeout=20"

/* --- events --- */

struct told {
    char host[300];   /* the sentence of the event of this name */
    char linger[400]; /* the last one */
    int lingers;
};

static void on_event(void *arg, const struct mst_event *event)
{
    struct told *told = arg;
    if (strcmp(event->name, "host") == 0) {
        (void)snprintf(told->host, sizeof told->host, "%s", event->message);
    }
    if (strcmp(event->name, "linger") == 0) {
        (void)snprintf(told->linger, sizeof told->linger, "%s", event->message);
        told->lingers++;
    }
}

/* --- nodes --- */

struct server_node {
    struct mst_handler *handler;
    struct told told;
    char endpoint[60];
};

static struct mst_handler *node_new(const char *endpoint,
                                    const char *run_id,
                                    const char *options,
                                    struct told *told)
{
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    assert_ok(unit_params("muster", endpoint, run_id, 1, 2, NULL, &params, &err));
    assert_ok(mst_params_parse(params, ALONE, &err));
    assert_ok(mst_params_parse(params, options, &err));
    if (told != NULL) {
        mst_params_on_event(params, on_event, told);
    }
    assert_ok(mst_handler_new(params, &handler, &err));
    mst_params_free(params);
    return handler;
}

static void enter(struct mst_handler *handler)
{
    struct mst_rendezvous round = {.size = sizeof round};
    assert_ok(mst_handler_next(handler, PLENTY_MS, &round, &err));
    mst_store_close(round.store);
}

/* A node of the job `own` that serves, in its round. */
static void server_node_open(struct server_node *node, const char *options)
{
    char text[200];
    *node = (struct server_node){.handler = NULL};
    (void)snprintf(text, sizeof text, "is_host=1,node_name=server%s", options);
    node->handler = node_new("127.0.0.1:0", "own", text, &node->told);
    const char *port = strstr(node->told.host, "127.0.0.1:");
    assert_non_null(port);
    assert_int_equal(sscanf(port, "%59[0-9.:]", node->endpoint), 1);
    node->endpoint[strlen(node->endpoint) - 1] = '\0'; /* the colon behind the port */
    enter(node->handler);
}

/* --- tests --- */

static void nobody_else(void **state)
{
    struct server_node node;
    (void)state;
    server_node_open(&node, "");
    assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
    assert_int_equal(node.told.lingers, 0);
    /* It has left its round, and can enter the next one. */
    enter(node.handler);
    mst_handler_free(node.handler);
}

static void another_job(void **state)
{
    struct server_node node;
    (void)state;
    server_node_open(&node, ",linger=20ms");
    struct mst_handler *other = node_new(node.endpoint, "other", "is_host=0,node_name=b", NULL);
    enter(other);
    assert_fails(mst_handler_linger(node.handler, -1, &err), MST_ETIMEOUT, "run 'other' (1 node)");
    assert_int_equal(node.told.lingers, 2); /* at the beginning and at the end */
    assert_non_null(strstr(node.told.linger, "run 'other' (1 node)"));
    assert_non_null(strstr(node.told.linger, "no longer"));
    mst_handler_cancel(node.handler);
    assert_fails(mst_handler_linger(node.handler, PLENTY_MS, &err), MST_ECANCELED, "");
    assert_non_null(strstr(node.told.linger, "still serves"));
    assert_ok(mst_handler_linger(other, 0, &err)); /* it serves nobody */
    assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
    mst_handler_free(other);
    mst_handler_free(node.handler);
}

/* The rest of its own job needs the server, too. */
static void own_job(void **state)
{
    struct server_node node;
    (void)state;
    server_node_open(&node, "");
    struct mst_handler *other = node_new(node.endpoint, "own", "is_host=0,node_name=b", NULL);
    assert_ok(mst_handler_begin(other, PLENTY_MS, &err));
    mst_notice_free(take_notice(node.handler, MST_NOTICE_WAITING));
    assert_fails(mst_handler_linger(node.handler, 10, &err), MST_ETIMEOUT, "run 'own' (1 node)");
    mst_handler_free(other);
    assert_ok(mst_handler_linger(node.handler, PLENTY_MS, &err));
    mst_handler_free(node.handler);
}

static void options(void **state)
{
    struct mst_params *params = NULL;
    struct mst_handler *handler = NULL;
    (void)state;
    assert_ok(unit_params("muster", "127.0.0.1:0", "own", 1, 2, NULL, &params, &err));
    assert_ok(mst_params_parse(params, "is_host=1,linger=-1", &err));
    assert_fails(mst_handler_new(params, &handler, &err), MST_EINVAL, "linger");
    mst_params_free(params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_else),
        cmocka_unit_test(another_job),
        cmocka_unit_test(own_job),
        cmocka_unit_test(options),
    };
    return MST_RUN_TESTS(tests);
}
