//! The store of one term.
//!
//! Each transaction compares the create revision of the leader's key, which is the term, and a counter, which it raises. So a
//! deposed placement driver writes nothing, and a transaction without an answer is sent again unchanged until it is known what
//! became of it: the counter has its value where it happened, because no other transaction writes that.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sbp_etcd::{Client, Committed, Compare, EtcdError, KeyValue, Transaction, Write};
use sbp_replication::Term;
use tokio::runtime::Handle;

use super::keys::Keys;
use super::membership::Membership;
use super::records::{Next, Writes};
use crate::placement::{Change, CommitError, Election, PlacementStore, WITH_COPY_NOTES};

/// The most operations of a transaction besides that of the counter: etcd refuses more than 128.
const MOST_OPERATIONS: usize = 127;
/// The most bytes of keys and values of a transaction. etcd takes 1.5 MiB of a request.
const MOST_BYTES: usize = 1 << 20;
/// How long after a failure a transaction is sent again.
const PAUSE: Duration = Duration::from_millis(50);

/// The store, while its placement driver leads.
#[derive(Debug)]
pub(super) struct EtcdStore {
    pub(super) client: Arc<Client>,
    /// Where the client's connections are moved.
    pub(super) runtime: Handle,
    pub(super) keys: Keys,
    pub(super) membership: Arc<Membership>,
    pub(super) term: Term,
    /// What the counter has; `None`: there is none yet.
    pub(super) count: Option<Bytes>,
    /// How many transactions of this term there were.
    pub(super) number: u64,
    pub(super) next: Next,
    /// Why it takes no more.
    pub(super) over: Option<String>,
}

/// What became of a transaction.
enum Fate {
    Done,
    /// Certainly nothing was written, and never will be; the term goes on.
    Refused(EtcdError),
    /// The term is over, or nobody knows.
    Over(String),
}

impl PlacementStore for EtcdStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        if let Some(over) = &self.over {
            return Err(CommitError::Deposed(over.clone()));
        }
        let mut is_first = true;
        for part in self.parts(changes)? {
            let next = part.next;
            match self.transact(part.into_writes()) {
                Fate::Done => self.next = next,
                Fate::Refused(error) if is_first => {
                    let full = error.to_string().contains("database space exceeded");
                    return Err(match full {
                        true => CommitError::DiskFull,
                        false => CommitError::Refused(error.to_string()),
                    });
                }
                // Some of it is written: what the placement driver has in memory is not what is stored.
                Fate::Refused(error) => return Err(self.end(error.to_string())),
                Fate::Over(why) => return Err(self.end(why)),
            }
            is_first = false;
        }
        Ok(())
    }

    fn notes_copies(&self) -> bool {
        self.membership.all_read(WITH_COPY_NOTES)
    }

    fn has_room(&self, staged: &[Change], more: &[Change]) -> bool {
        let all = [staged, more].concat();
        fits(&Writes::new(&self.keys, &all, self.next))
    }
}

fn fits(writes: &Writes) -> bool {
    writes.count() <= MOST_OPERATIONS && writes.bytes() <= MOST_BYTES
}

impl EtcdStore {
    /// The transactions that make these changes. A trim may remove more ranges than one has room for. They are removed in
    /// their order, and what is left begins where the rest begins, so that each part of it is a trim.
    fn parts(&self, changes: &[Change]) -> Result<Vec<Writes>, CommitError> {
        let whole = Writes::new(&self.keys, changes, self.next);
        if fits(&whole) {
            return Ok(vec![whole]);
        }
        let is_trim = changes
            .iter()
            .rev()
            .skip(1)
            .all(|change| matches!(change, Change::RemoveRange(_)));
        if !is_trim || whole.bytes() > MOST_BYTES && whole.count() <= MOST_OPERATIONS {
            return Err(CommitError::Refused(format!(
                "the change takes {} bytes in {} operations, and the metadata store takes {MOST_BYTES} in {MOST_OPERATIONS} \
                 at once: fewer columns or properties take less",
                whole.bytes(),
                whole.count()
            )));
        }
        let parts = changes.chunks(MOST_OPERATIONS);
        Ok(parts.map(|part| Writes::new(&self.keys, part, self.next)).collect())
    }

    /// Ends the term, as far as this store goes.
    fn end(&mut self, why: String) -> CommitError {
        let over = format!(
            "this placement driver does not lead any more ({why}); what was asked may have been carried out: ask again, and \
             whoever leads now says how things are"
        );
        tracing::warn!(term = %self.term, why, "the metadata store takes no more of this placement driver in this term");
        self.membership.step_down(self.term);
        self.over = Some(over.clone());
        CommitError::Deposed(over)
    }

    /// Makes a transaction, and waits until it is known what became of it; no longer than this placement driver leads.
    fn transact(&mut self, mut writes: Vec<Write>) -> Fate {
        self.number += 1;
        let raised = Bytes::from(format!("{:016x}-{:016x}", self.term.0, self.number));
        let (leader, count) = (self.keys.leader(), self.keys.count());
        writes.push(Write::Put(count.clone(), raised.clone(), None));
        let revision = i64::try_from(self.term.0).unwrap_or(i64::MAX);
        let transaction = Transaction {
            compares: vec![
                Compare::CreatedAt(leader.clone(), revision),
                match &self.count {
                    Some(count_now) => Compare::Has(count.clone(), count_now.clone()),
                    None => Compare::Absent(count.clone()),
                },
            ],
            writes,
            otherwise_read: vec![leader, count],
        };
        let runtime = self.runtime.clone();
        let mut is_unknown = false;
        while self.membership.leads_in(self.term) {
            match runtime.block_on(self.client.commit(&transaction)) {
                Ok(Committed::Done { .. }) => {
                    self.count = Some(raised);
                    return Fate::Done;
                }
                Ok(Committed::Refused { found }) => {
                    if has(&found, &raised) {
                        self.count = Some(raised);
                        return Fate::Done;
                    }
                    return Fate::Over("another placement driver has led since".to_owned());
                }
                Err(error) if error.is_of_the_member() => is_unknown |= error.may_have_happened(),
                Err(error) if is_unknown => return Fate::Over(error.to_string()),
                Err(error) => return Fate::Refused(error),
            }
            std::thread::sleep(PAUSE);
        }
        Fate::Over("its lease was not kept alive: the metadata store did not answer in time".to_owned())
    }
}

/// Whether the counter, which is read behind the leader's key, has this value.
fn has(found: &[Option<KeyValue>], raised: &Bytes) -> bool {
    let count = found.get(1).and_then(Option::as_ref);
    count.is_some_and(|count| count.value == raised)
}
