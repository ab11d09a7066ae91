//! Where other range servers are.

use std::collections::HashMap;
use std::sync::Arc;

use sbp_locks::RwLock;
use sbp_types::ServerId;

/// The addresses of range servers, as the placement driver told them.
#[derive(Debug, Default)]
pub(crate) struct AddressBook(RwLock<HashMap<ServerId, Arc<str>>>);

impl AddressBook {
    /// Notes where a server is from now on. No address changes nothing.
    pub(crate) fn note(&self, server: ServerId, address: &str) {
        if !address.is_empty() && !self.has(server, address) {
            self.0.write().insert(server, Arc::from(address));
        }
    }

    /// Whether this is where the server is known to be.
    pub(crate) fn has(&self, server: ServerId, address: &str) -> bool {
        self.0.read().get(&server).is_some_and(|known| **known == *address)
    }

    /// Where the server is, if that was told.
    pub(crate) fn address(&self, server: ServerId) -> Option<Arc<str>> {
        self.0.read().get(&server).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_address_counts() {
        let book = AddressBook::default();
        assert_eq!(book.address(ServerId(1)), None);
        book.note(ServerId(1), "a:1");
        book.note(ServerId(1), "");
        assert_eq!(book.address(ServerId(1)).as_deref(), Some("a:1"));
        book.note(ServerId(1), "b:1");
        assert!(book.has(ServerId(1), "b:1") && !book.has(ServerId(1), "a:1") && !book.has(ServerId(2), "b:1"));
    }
}
