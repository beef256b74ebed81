/* etcd/v2.c - the v2 API of etcd.
 *
 * Reads are repeated until they are answered. A write is sent once; only a refresh, which changes
 * nothing but the time, may be sent again. */
#include "etcd/v2.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/percent.h"
#include "base/unicode.h"
#include "base/until.h"

/* The server's own limit. */
#define V2_PATH_SIZE_MAX MST_KIB(512)
#define V2_BODY_SIZE_MAX MST_MIB(192)
/* Pause between attempts to read from a cluster without a leader. */
#define V2_PAUSE_MS 100
#define V2_PAUSE_MS_MAX 1000

struct mst__v2 {
    struct mst__http *http;
};

int mst__v2_new(const struct mst__http_options *options,
                struct mst__v2 **ret_v2,
                struct mst_err *reterr)
{
    if (options->user != NULL && strchr(options->user, ':') != NULL) {
        return mst__fail(reterr, MST_EINVAL, 0, "user '%.60s': the v2 API does not allow a colon",
                         options->user);
    }
    struct mst__v2 *v2 = mst__malloc(sizeof *v2);
    if (v2 == NULL) {
        return mst__fail(reterr, MST_ENOMEM, 0, "client of etcd");
    }
    int rv = mst__http_new(options, &v2->http, reterr);
    if (rv != 0) {
        mst__free(v2);
        return rv;
    }
    *ret_v2 = v2;
    return 0;
}

void mst__v2_free(struct mst__v2 *v2)
{
    if (v2 != NULL) {
        mst__http_free(v2->http);
        mst__free(v2);
    }
}

size_t mst__v2_current(const struct mst__v2 *v2)
{
    return mst__http_current(v2->http);
}

const char *mst__v2_where(const struct mst__v2 *v2)
{
    return mst__http_where(v2->http);
}

uint64_t mst__v2_requests(const struct mst__v2 *v2)
{
    return mst__http_requests(v2->http);
}

/* --- paths and forms --- */

/* Every other character is special in some part of a URL. */
#define URL_PLAIN "-_.~"

/* Append one field, after @separator: '?' or '&', or 0. */
static int append_field(struct mst__buf *buf,
                        char separator,
                        const char *name,
                        struct mst_bytes value)
{
    int rv = separator == 0 ? 0 : mst__buf_append_u8(buf, (uint8_t)separator);
    rv = rv != 0 ? rv : mst__buf_append(buf, mst_bytes_str(name));
    rv = rv != 0 ? rv : mst__buf_append_u8(buf, '=');
    return rv != 0 ? rv : mst__percent_append(buf, value, URL_PLAIN);
}

static int append_number(struct mst__buf *buf, char separator, const char *name, uint64_t value)
{
    char text[24];
    int length = snprintf(text, sizeof text, "%" PRIu64, value);
    return append_field(buf, separator, name, mst_bytes_of(text, (size_t)length));
}

/* A query of switches: a name is appended if its value is true. */
struct v2_switch {
    const char *name;
    bool is_on;
};

static int append_switches(struct mst__buf *buf,
                           char *separator,
                           const struct v2_switch *switches,
                           size_t count)
{
    int rv = 0;
    for (size_t i = 0; rv == 0 && i < count; i++) {
        if (switches[i].is_on) {
            rv = append_field(buf, *separator, switches[i].name, mst_bytes_str("true"));
            *separator = '&';
        }
    }
    return rv;
}

/* "/v2/keys/a/b" for the key "a//b/". 0, MST_EINVAL with a message, or another error without
 * one. */
static int append_path(struct mst__buf *buf, const char *key, struct mst_err *reterr)
{
    if (!mst__unicode_is_utf8(mst_bytes_str(key))) {
        return mst__fail(reterr, MST_EINVAL, 0, "key of %zu bytes is not UTF-8", strlen(key));
    }
    int rv = mst__buf_append(buf, mst_bytes_str("/v2/keys"));
    bool is_empty = true;
    for (const char *at = key + strspn(key, "/"); rv == 0 && *at != '\0';) {
        struct mst_bytes part = mst_bytes_of(at, strcspn(at, "/"));
        if (mst__bytes_equal(part, mst_bytes_str(".")) ||
            mst__bytes_equal(part, mst_bytes_str(".."))) {
            return mst__fail(reterr, MST_EINVAL, 0,
                             "key '%.100s': etcd does not allow '%.*s' in paths", key,
                             (int)part.size, (const char *)part.data);
        }
        rv = mst__buf_append_u8(buf, '/');
        rv = rv != 0 ? rv : mst__percent_append(buf, part, URL_PLAIN);
        is_empty = false;
        at += part.size;
        at += strspn(at, "/");
    }
    return rv != 0 || !is_empty ? rv : mst__buf_append_u8(buf, '/');
}

/* Append a NUL to the path, and add a message to errors that have none. */
static int finish_path(struct mst__buf *buf, int rv, const char *key, struct mst_err *reterr)
{
    rv = rv != 0 ? rv : mst__buf_append_u8(buf, '\0');
    if (rv == MST_ELIMIT || rv == MST_ENOMEM) {
        mst__err_fill(reterr, rv, 0, "request about the key '%.100s'", key);
    }
    return rv;
}

/* --- calls --- */

/* Send @request and read the answer. While the cluster has no leader, repeatable requests are
 * retried until the deadline. */
static int v2_call(struct mst__v2 *v2,
                   const struct mst__http_request *request,
                   struct mst__until until,
                   struct mst__v2_answer *answer,
                   struct mst_err *reterr)
{
    struct mst__http_response response;
    mst__http_response_init(&response);
    struct mst_err err;
    int rv;
    for (int64_t pause_ms = V2_PAUSE_MS;; pause_ms *= 2) {
        rv = mst__http_call(v2->http, request, until, &response, &err);
        if (rv != 0) {
            break;
        }
        rv = mst__v2_answer_read(&response, mst__v2_where(v2), answer, &err);
        if (rv != MST_EUNKNOWN) {
            break;
        }
        mst__http_rotate(v2->http);
        if (!request->is_repeatable) {
            break;
        }
        pause_ms = pause_ms < V2_PAUSE_MS_MAX ? pause_ms : V2_PAUSE_MS_MAX;
        int64_t until_ms = mst__clock_ms() + pause_ms;
        if (until_ms >= until.deadline_ms) {
            rv = mst__err_wrap(&err, MST_ETIMEOUT, "until the deadline");
            break;
        }
        /* The next call checks for a wake-up. */
        (void)mst__until_pause(until.wake_fd, until_ms * 1000);
    }
    mst__http_response_close(&response);
    if (rv != 0 && reterr != NULL) {
        *reterr = err;
    }
    return rv;
}

int mst__v2_get(struct mst__v2 *v2,
                const char *key,
                bool is_recursive,
                bool is_quorum,
                struct mst__until until,
                struct mst__v2_answer *answer,
                struct mst_err *reterr)
{
    mst__v2_answer_close(answer);
    const struct v2_switch switches[] = {
        {"sorted", true}, {"recursive", is_recursive}, {"quorum", is_quorum}};
    struct mst__buf path;
    mst__buf_init(&path, V2_PATH_SIZE_MAX);
    char separator = '?';
    int rv = append_path(&path, key, reterr);
    rv = rv != 0 ? rv : append_switches(&path, &separator, switches, 3);
    rv = finish_path(&path, rv, key, reterr);
    if (rv == 0) {
        struct mst__http_request request = {
            .method = MST_HTTP_GET,
            .path = (const char *)mst__buf_bytes(&path).data,
            .is_repeatable = true,
        };
        rv = v2_call(v2, &request, until, answer, reterr);
    }
    mst__buf_close(&path);
    return rv;
}

/* Refuse writes that etcd would refuse or misinterpret. */
static int check_write(const struct mst__v2_write *write, struct mst_err *reterr)
{
    const char *key = write->key;
    if (!mst__unicode_is_utf8(write->value) || !mst__unicode_is_utf8(write->previous_value)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "value of '%.100s' is not UTF-8, which the v2 API requires", key);
    }
    if (write->condition == MST_V2_IF_VALUE && write->previous_value.size == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "an empty value of '%.100s' cannot be compared",
                         key);
    }
    if (write->condition == MST_V2_IF_INDEX && write->previous_index == 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "index 0 of '%.100s' cannot be compared", key);
    }
    if (write->is_refresh && (write->ttl_s < 0 || write->value.size > 0)) {
        return mst__fail(reterr, MST_EINVAL, 0,
                         "a refresh of '%.100s' needs a TTL and takes no value", key);
    }
    if (write->is_dir && write->value.size > 0) {
        return mst__fail(reterr, MST_EINVAL, 0, "directory '%.100s' cannot have a value", key);
    }
    if (write->ttl_s < 0 && write->ttl_s != MST_V2_NO_TTL) {
        return mst__fail(reterr, MST_EINVAL, 0, "TTL of '%.100s' is negative", key);
    }
    return 0;
}

/* The condition as a field after @separator, which becomes '&'. */
static int append_condition(struct mst__buf *buf,
                            char *separator,
                            const struct mst__v2_write *write)
{
    char before = *separator;
    *separator = write->condition == MST_V2_ALWAYS ? before : '&';
    switch (write->condition) {
        case MST_V2_IF_ABSENT:
            return append_field(buf, before, "prevExist", mst_bytes_str("false"));
        case MST_V2_IF_PRESENT:
            return append_field(buf, before, "prevExist", mst_bytes_str("true"));
        case MST_V2_IF_VALUE:
            return append_field(buf, before, "prevValue", write->previous_value);
        case MST_V2_IF_INDEX:
            return append_number(buf, before, "prevIndex", write->previous_index);
        case MST_V2_ALWAYS:
            break;
    }
    return 0;
}

static int append_write(struct mst__buf *buf, const struct mst__v2_write *write)
{
    char separator = 0;
    const struct v2_switch switches[] = {{"dir", write->is_dir}, {"refresh", write->is_refresh}};
    int rv = append_switches(buf, &separator, switches, 2);
    if (rv == 0 && !write->is_dir && !write->is_refresh) {
        rv = append_field(buf, separator, "value", write->value);
        separator = '&';
    }
    rv = rv != 0 ? rv : append_condition(buf, &separator, write);
    if (rv == 0 && write->ttl_s != MST_V2_NO_TTL) {
        rv = append_number(buf, separator, "ttl", (uint64_t)write->ttl_s);
    }
    return rv;
}

int mst__v2_put(struct mst__v2 *v2,
                const struct mst__v2_write *write,
                struct mst__until until,
                struct mst__v2_answer *answer,
                struct mst_err *reterr)
{
    mst__v2_answer_close(answer);
    int rv = check_write(write, reterr);
    if (rv != 0) {
        return rv;
    }
    struct mst__buf path;
    struct mst__buf body;
    mst__buf_init(&path, V2_PATH_SIZE_MAX);
    mst__buf_init(&body, V2_BODY_SIZE_MAX);
    rv = append_path(&path, write->key, reterr);
    rv = rv != 0 ? rv : append_write(&body, write);
    rv = finish_path(&path, rv, write->key, reterr);
    if (rv == 0) {
        struct mst__http_request request = {
            .method = MST_HTTP_PUT,
            .path = (const char *)mst__buf_bytes(&path).data,
            .body = mst__buf_bytes(&body),
            .content_type = "application/x-www-form-urlencoded",
            .is_repeatable = write->is_refresh && write->condition != MST_V2_IF_INDEX,
        };
        rv = v2_call(v2, &request, until, answer, reterr);
    }
    mst__buf_close(&path);
    mst__buf_close(&body);
    return rv;
}

int mst__v2_delete(struct mst__v2 *v2,
                   const struct mst__v2_write *write,
                   bool is_recursive,
                   struct mst__until until,
                   struct mst__v2_answer *answer,
                   struct mst_err *reterr)
{
    mst__v2_answer_close(answer);
    MST_ASSERT(write->condition != MST_V2_IF_ABSENT);
    MST_ASSERT(write->condition != MST_V2_IF_PRESENT);
    int rv = check_write(write, reterr);
    if (rv != 0) {
        return rv;
    }
    const struct v2_switch switches[] = {{"dir", write->is_dir}, {"recursive", is_recursive}};
    struct mst__buf path;
    mst__buf_init(&path, V2_PATH_SIZE_MAX);
    char separator = '?';
    rv = append_path(&path, write->key, reterr);
    rv = rv != 0 ? rv : append_switches(&path, &separator, switches, 2);
    rv = rv != 0 ? rv : append_condition(&path, &separator, write);
    rv = finish_path(&path, rv, write->key, reterr);
    if (rv == 0) {
        struct mst__http_request request = {
            .method = MST_HTTP_DELETE,
            .path = (const char *)mst__buf_bytes(&path).data,
        };
        rv = v2_call(v2, &request, until, answer, reterr);
    }
    mst__buf_close(&path);
    return rv;
}

/* --- waiting --- */

/* The head has arrived; the rest comes with the event. */
static int v2_wait_read(struct mst__v2 *v2,
                        struct mst__http_stream *stream,
                        struct mst__until until,
                        struct mst__v2_answer *answer,
                        struct mst_err *reterr)
{
    struct mst_bytes line;
    int rv = mst__http_stream_read(stream, until, &line, reterr);
    if (rv == MST_ENOTFOUND) {
        return mst__fail(reterr, MST_ECONN, 0, "wait at '%s' ended without an event",
                         mst__v2_where(v2));
    }
    if (rv != 0) {
        return rv;
    }
    struct mst__http_response response = *mst__http_stream_head(stream);
    mst__buf_init(&response.body, MST_HTTP_RESPONSE_SIZE_MAX);
    rv = mst__buf_append(&response.body, line);
    if (rv != 0) {
        mst__err_fill(reterr, rv, 0, "event from '%s'", mst__v2_where(v2));
    } else {
        rv = mst__v2_answer_read(&response, mst__v2_where(v2), answer, reterr);
    }
    mst__buf_close(&response.body);
    if (rv == MST_EUNKNOWN) {
        mst__http_rotate(v2->http);
        rv = mst__err_wrap(reterr, MST_ECONN, "wait");
    }
    if (rv == 0 && answer->code == MST_V2_OK) {
        /* The index in the head is older than the event. */
        answer->index = answer->node.modified;
    }
    return rv;
}

int mst__v2_wait(struct mst__v2 *v2,
                 const char *key,
                 bool is_recursive,
                 uint64_t from_index,
                 struct mst__until until,
                 struct mst__v2_answer *answer,
                 struct mst_err *reterr)
{
    mst__v2_answer_close(answer);
    const struct v2_switch switches[] = {{"wait", true}, {"recursive", is_recursive}};
    struct mst__buf path;
    mst__buf_init(&path, V2_PATH_SIZE_MAX);
    char separator = '?';
    int rv = append_path(&path, key, reterr);
    rv = rv != 0 ? rv : append_switches(&path, &separator, switches, 2);
    if (rv == 0 && from_index > 0) {
        rv = append_number(&path, separator, "waitIndex", from_index);
    }
    rv = finish_path(&path, rv, key, reterr);
    if (rv == 0) {
        struct mst__http_request request = {
            .method = MST_HTTP_GET,
            .path = (const char *)mst__buf_bytes(&path).data,
            .is_watch = true,
            .is_repeatable = true,
        };
        struct mst__http_stream *stream = NULL;
        rv = mst__http_stream_open(v2->http, &request, until, &stream, reterr);
        if (rv == 0) {
            rv = v2_wait_read(v2, stream, until, answer, reterr);
        }
        mst__http_stream_close(stream);
    }
    mst__buf_close(&path);
    return rv;
}
