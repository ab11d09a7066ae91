//! Writer ids of appenders that were not given one.
//!
//! A server keeps something of every writer for days. So a name is used again: by one appender at a time, each in a
//! higher epoch than the one before.

use sbp_client::unique_writer_id;
use sbp_locks::Mutex;
use sbp_types::WriterId;

use crate::process::fork::{self, Generation};

/// Names that nobody of this process uses now.
static FREE: Mutex<Vec<Name>> = Mutex::new(Vec::new());

/// A writer's name and epoch, for one appender. Dropped, it can be used again.
#[derive(Debug)]
pub(crate) struct LeasedWriterId {
    pub(crate) id: WriterId,
    pub(crate) epoch: i64,
    made_by: Generation,
}

#[derive(Debug)]
struct Name {
    id: WriterId,
    next_epoch: i64,
    made_by: Generation,
}

/// A name that nobody else uses, in an epoch that nobody has used.
pub(crate) fn lease() -> LeasedWriterId {
    let mut free = FREE.lock();
    // A forked child inherits its parent's, which the parent goes on using.
    free.retain(|name| name.made_by.is_current());
    let name = free.pop().unwrap_or_else(|| Name {
        id: unique_writer_id(),
        next_epoch: 0,
        made_by: fork::current(),
    });
    LeasedWriterId {
        id: name.id,
        epoch: name.next_epoch,
        made_by: name.made_by,
    }
}

impl Drop for LeasedWriterId {
    fn drop(&mut self) {
        if self.made_by.is_current() {
            FREE.lock().push(Name {
                id: self.id,
                next_epoch: self.epoch.saturating_add(1),
                made_by: self.made_by,
            });
        }
    }
}
