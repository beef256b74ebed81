/* etcd/legacy_doc.h - the document of a legacy rendezvous as JSON, in the form of torch's
 * agents. */
#ifndef MST_ETCD_LEGACY_DOC_H
#define MST_ETCD_LEGACY_DOC_H

#include <muster/error.h>

#include "base/buf.h"
#include "core/legacy_doc.h"

/* Parse @text into @ret_doc, which is initialised and is emptied first. 0; MST_ESTATE with the
 * error; MST_ELIMIT, MST_ENOMEM. */
int mst__legacy_doc_parse(struct mst_bytes text,
                          struct mst__legacy_doc *ret_doc,
                          struct mst_err *reterr);

/* Append the text to @buf: 0, MST_EINVAL (the document has an unknown status), MST_ELIMIT,
 * MST_ENOMEM. */
int mst__legacy_doc_write(const struct mst__legacy_doc *doc, struct mst__buf *buf);

#endif /* MST_ETCD_LEGACY_DOC_H */
