//! A client of all members.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sbp_transport::{ClientTls, ClientTlsFiles, Descriptors, LinkSettings, TlsFileError};

use crate::error::{EtcdError, Failure};
use crate::member::Member;
use crate::message::{
    CompactionRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, Operation, RangeRequest,
};
use crate::request::{Committed, KeyValue, LeaseId, Page, PageRequest, Transaction};

/// What HTTP/2 is called inside TLS.
const PROTOCOL: &[u8] = b"h2";

/// How etcd is asked.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of each member.
    pub members: Vec<String>,
    /// TLS, where the members speak it. A client's certificate is also how etcd knows who asks.
    pub tls: Option<ClientTlsFiles>,
    /// How long one call to one member may take, a connection included.
    pub call_timeout: Duration,
    /// Remembers the sockets.
    pub sockets: Arc<Descriptors>,
}

impl ClientConfig {
    /// How long one call to one member may take, where nothing else is wanted.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);
}

/// Asks one member after the other.
#[derive(Debug)]
pub struct Client {
    members: Vec<Member>,
    /// The index of the one to ask.
    current: AtomicUsize,
    call_timeout: Duration,
}

impl Client {
    /// Dials nobody yet.
    ///
    /// # Errors
    /// A file of TLS cannot be used.
    pub fn new(config: ClientConfig) -> Result<Self, TlsFileError> {
        let tls = config.tls.map(|files| ClientTls::speaking(PROTOCOL, files));
        let settings = LinkSettings {
            timeout: config.call_timeout,
            tls: tls.transpose()?,
            sockets: config.sockets,
        };
        let member = |address: &String| Member::new(address, settings.clone());
        Ok(Self {
            members: config.members.iter().filter_map(member).collect(),
            current: AtomicUsize::new(0),
            call_timeout: config.call_timeout,
        })
    }

    /// The value of a key, and the revision of the store at that moment.
    ///
    /// # Errors
    /// No member answered.
    pub async fn get(&self, key: Bytes) -> Result<(Option<KeyValue>, i64), EtcdError> {
        let request = RangeRequest {
            key,
            ..RangeRequest::default()
        };
        let page = Page::from(self.insist(&request, "read a key").await?);
        Ok((page.keys.into_iter().next(), page.revision))
    }

    /// Some of the keys with a prefix. Where they are too much for one answer there are fewer than asked for.
    ///
    /// # Errors
    /// No member answered, or the revision is compacted.
    pub async fn page(&self, request: &PageRequest) -> Result<Page, EtcdError> {
        let mut limit = request.limit.max(1);
        loop {
            match self.insist(&request.to_message(limit), "read keys").await {
                Err(EtcdError {
                    failure: Failure::TooLarge(_),
                    ..
                }) if limit > 1 => limit /= 2,
                read => return Ok(read?.into()),
            }
        }
    }

    /// Makes a transaction. One that was not answered is not sent again: that is for the caller to decide, who knows
    /// whether it may happen twice.
    ///
    /// # Errors
    /// The transaction was not made, or [may have been](EtcdError::may_have_happened).
    pub async fn commit(&self, transaction: &Transaction) -> Result<Committed, EtcdError> {
        let request = transaction.to_message();
        let mut left = self.members.len();
        loop {
            left = left.saturating_sub(1);
            match self.ask(&request, "make a transaction").await {
                Err(EtcdError {
                    failure: Failure::Unreachable(_),
                    ..
                }) if left > 0 => {}
                answer => return Ok(answer?.into()),
            }
        }
    }

    /// A new lease, which ends that long after it was granted or last kept alive. Seconds count; etcd may give more.
    ///
    /// # Errors
    /// No member answered. A lease that was granted all the same ends by itself.
    pub async fn grant(&self, time: Duration) -> Result<LeaseId, EtcdError> {
        let request = LeaseGrantRequest {
            ttl: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        };
        let granted = self.insist(&request, "grant a lease").await?;
        if granted.error.is_empty() {
            Ok(LeaseId(granted.id))
        } else {
            Err(self.failed("grant a lease", Failure::Refused(granted.error)))
        }
    }

    /// Has a lease begin its time again. Returns whether there still is one.
    ///
    /// # Errors
    /// No member answered.
    pub async fn keep_alive(&self, lease: LeaseId) -> Result<bool, EtcdError> {
        let request = LeaseKeepAliveRequest { id: lease.0 };
        let kept = self.insist(&request, "keep a lease alive").await?;
        Ok(kept.ttl > 0)
    }

    /// Ends a lease, whoever has it, and removes its keys. One that has ended is no error.
    ///
    /// # Errors
    /// No member answered.
    pub async fn revoke(&self, lease: LeaseId) -> Result<(), EtcdError> {
        let request = LeaseRevokeRequest { id: lease.0 };
        match self.insist(&request, "end a lease").await {
            Ok(_)
            | Err(EtcdError {
                failure: Failure::Absent(_),
                ..
            }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets what was before a revision.
    ///
    /// # Errors
    /// No member answered, or the revision is compacted already.
    pub async fn compact(&self, revision: i64) -> Result<(), EtcdError> {
        let request = CompactionRequest { revision };
        self.insist(&request, "compact its history").await.map(|_| ())
    }

    /// Asks every member for a key. Returns their addresses, and why those did not answer that did not.
    pub async fn look_at_members(&self, key: Bytes) -> Vec<(String, Option<String>)> {
        let request = RangeRequest {
            key,
            ..RangeRequest::default()
        };
        let mut found = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let trouble = member.call(&request, self.call_timeout).await.err();
            found.push((member.address().to_owned(), trouble.map(|failure| failure.to_string())));
        }
        found
    }

    /// Asks each member once until one answers: for what may happen twice.
    async fn insist<Q: Operation + Clone>(&self, request: &Q, asked: &'static str) -> Result<Q::Answer, EtcdError> {
        let mut left = self.members.len();
        loop {
            left = left.saturating_sub(1);
            match self.ask(request, asked).await {
                Err(error) if error.is_of_the_member() && left > 0 => {}
                answer => return answer,
            }
        }
    }

    /// Asks one member. After one that did not answer the next one is asked from then on.
    async fn ask<Q: Operation + Clone>(&self, request: &Q, asked: &'static str) -> Result<Q::Answer, EtcdError> {
        let index = self.current.load(Ordering::Relaxed);
        let Some(member) = self.members.get(index) else {
            return Err(self.failed(
                asked,
                Failure::Unreachable("no address of it can be dialled".to_owned()),
            ));
        };
        let error = match member.call(request, self.call_timeout).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => EtcdError {
                member: member.address().to_owned(),
                asked,
                failure,
            },
        };
        if error.is_of_the_member() {
            let next = (index + 1) % self.members.len();
            // Somebody else may have found the same at the same time.
            let _moved = self
                .current
                .compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(error)
    }

    fn failed(&self, asked: &'static str, failure: Failure) -> EtcdError {
        let member = self.members.get(self.current.load(Ordering::Relaxed));
        EtcdError {
            member: member.map_or_else(String::new, |member| member.address().to_owned()),
            asked,
            failure,
        }
    }
}
