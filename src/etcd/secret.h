/* etcd/secret.h - passwords of etcd's users: where they come from, and how they are wiped. No
 * message contains one. */
#ifndef MST_ETCD_SECRET_H
#define MST_ETCD_SECRET_H

#include <muster/error.h>

/* The variable that is used if no file is given. */
#define MST_ETCD_ENV_PASSWORD "MUSTER_ETCD_PASSWORD"
#define MST_ETCD_PASSWORD_SIZE_MAX 4096

/**
 * The password of @user: the first line of the file @path or, if that is NULL, the environment
 * variable. On the heap, for mst__secret_free.
 *
 * Returns 0; MST_EINVAL if there is none, or the first line is empty; MST_ESYS with errno if the
 * file cannot be read; MST_ENOMEM.
 */
int mst__secret_password(const char *user,
                         const char *path,
                         char **ret_password,
                         struct mst_err *reterr);

/* Wipe and free, so that no secret stays in freed memory. NULL is allowed. */
void mst__secret_free(char *text);

#endif /* MST_ETCD_SECRET_H */
