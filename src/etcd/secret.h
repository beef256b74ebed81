/* etcd/secret.h - passwords of etcd's users: where they come from, and how they go. No message ever
 * holds one. */
#ifndef MST_ETCD_SECRET_H
#define MST_ETCD_SECRET_H

#include <muster/error.h>

/* Where a password is looked for when nothing else tells it. */
#define MST_ETCD_ENV_PASSWORD "MUSTER_ETCD_PASSWORD"
#define MST_ETCD_PASSWORD_SIZE_MAX 4096

/**
 * The password of @user: the first line of the file @path, or, when that is NULL, what the
 * environment says. On the heap, for mst__secret_free.
 *
 * Returns 0; MST_EINVAL when there is none, or the file does not begin with one; MST_ESYS with
 * errno when it cannot be read; MST_ENOMEM.
 */
int mst__secret_password(const char *user,
                         const char *path,
                         char **ret_password,
                         struct mst_err *reterr);

/* Wipe and free: secrets do not stay behind in memory that others get. NULL is fine. */
void mst__secret_free(char *text);

#endif /* MST_ETCD_SECRET_H */
