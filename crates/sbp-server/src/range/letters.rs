//! What connections are told, gathered so that each is woken once.

use std::sync::Arc;

use sbp_types::StreamId;

use crate::connection::{AppendDone, ConnectionCommand, Port};

/// What one group of the log, or one order, has to tell.
#[derive(Debug, Default)]
pub(super) struct Letters {
    letters: Vec<Letter>,
    /// Where the last one was found: neighbours in a group mostly come from the same connection.
    last: usize,
}

#[derive(Debug)]
pub(super) struct Letter {
    port: Arc<Port>,
    /// Entries of APPENDs that have ended.
    pub(super) appended: Vec<AppendDone>,
    /// Streams that waiting fetches have to look at again.
    pub(super) advanced: Vec<StreamId>,
}

impl Letters {
    /// The letter to a connection.
    pub(super) fn to(&mut self, port: Arc<Port>) -> &mut Letter {
        let same = |letter: &Letter| Arc::ptr_eq(&letter.port, &port);
        if !self.letters.get(self.last).is_some_and(same) {
            self.last = self.letters.iter().position(same).unwrap_or_else(|| {
                self.letters.push(Letter {
                    port: Arc::clone(&port),
                    appended: Vec::new(),
                    advanced: Vec::new(),
                });
                self.letters.len() - 1
            });
        }
        self.letters
            .get_mut(self.last)
            .expect("the place was just found or made")
    }

    /// Takes out what a connection is told of its appends: it is told by the thread that is here already.
    pub(super) fn take_appended(&mut self, port: &Arc<Port>) -> Vec<AppendDone> {
        let letter = self.letters.iter_mut().find(|letter| Arc::ptr_eq(&letter.port, port));
        letter
            .map(|letter| std::mem::take(&mut letter.appended))
            .unwrap_or_default()
    }

    /// Sends them. Not under a lock: whoever is woken may want it.
    pub(super) fn post(self) {
        for Letter {
            port,
            appended,
            advanced,
        } in self.letters
        {
            let mut commands = Vec::with_capacity(2);
            if !appended.is_empty() {
                commands.push(ConnectionCommand::Appended(appended));
            }
            if !advanced.is_empty() {
                commands.push(ConnectionCommand::Advanced(advanced));
            }
            // A connection that is gone needs no answer: what was synced stays.
            let _gone = port.mailbox.post_all(&mut commands);
        }
    }
}
