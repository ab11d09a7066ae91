//! Which of several servers with one number is the range server that belongs to the cluster.

use sbp_types::ServerId;

use crate::refusal::Refusal;

/// A range server since its last start, as it says itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    /// How often its data directory was started; 0: not told, by an earlier version.
    pub(crate) starts: u64,
    /// `host:port`, where it is.
    pub(crate) address: String,
}

impl Life {
    /// Whether a server that says `said` can be the one with this number of which `self` is known.
    ///
    /// # Errors
    ///
    /// It cannot: a directory counts each of its starts, and a server does not change its address without one.
    pub(crate) fn check(&self, id: ServerId, said: &Self) -> Result<(), Refusal> {
        let (known, address) = (&self.address, &said.address);
        if said.starts == 0 || said.starts > self.starts {
            return Ok(());
        }
        if said.starts < self.starts {
            return Err(Refusal::invalid(format!(
                "range server {id} at {address} has been started {} times, and the range server with this number at {known} \
                 {} times: this data directory is an older copy; end this server, and start it with an empty directory",
                said.starts, self.starts
            )));
        }
        if address == known {
            return Ok(());
        }
        Err(self.is_copied(id, address))
    }

    /// Two servers have this number.
    pub(super) fn is_copied(&self, id: ServerId, address: &str) -> Refusal {
        let known = &self.address;
        Refusal::invalid(format!(
            "range server {id} is at {known}, and another one at {address} has the same number: the data directory of one is a \
             copy of the other's; end one of them, and start it with an empty directory"
        ))
    }

    /// Somebody else has to say first that the server with this number has moved.
    pub(super) fn may_be_there(&self, id: ServerId, address: &str, until: &str) -> Refusal {
        let known = &self.address;
        Refusal::invalid(format!(
            "range server {id} was at {known} before, and may still be there: the server at {address} is asked to try again \
             {until}. If both run, the data directory of one is a copy of the other's: end one of them, and start it with an \
             empty directory"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(starts: u64, address: &str) -> Life {
        let address = address.to_owned();
        Life { starts, address }
    }

    #[test]
    fn a_life_is_followed_by_one_with_more_starts_or_by_itself() {
        let id = ServerId(3);
        let known = life(4, "a:1");
        for follows in [life(4, "a:1"), life(5, "a:1"), life(5, "b:1"), life(0, "b:1")] {
            assert_eq!(known.check(id, &follows), Ok(()), "{follows:?}");
        }
        for contradicts in [life(3, "a:1"), life(3, "b:1"), life(4, "b:1")] {
            let refused = known.check(id, &contradicts).unwrap_err();
            assert!(refused.message.contains("a:1"), "{}", refused.message);
        }
        assert_eq!(life(0, "a:1").check(id, &life(1, "b:1")), Ok(()), "what was not told");
    }
}
