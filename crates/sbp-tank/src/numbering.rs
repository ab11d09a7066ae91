//! The sequence numbers of bundles that follow each other.

use crate::bundle::{Bundle, BundleHead, Span};
use crate::fault::Fault;

/// Where the next bundle begins, in a chunk of an answer or in a file of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbering {
    next: Option<u64>,
}

impl Numbering {
    /// The first bundle's first message has this number; `None`: the first bundle is sparse, and says it itself.
    #[must_use]
    pub fn new(base: Option<u64>) -> Self {
        Self { next: base }
    }

    /// The number after all bundles so far.
    #[must_use]
    pub fn next(&self) -> Option<u64> {
        self.next
    }

    /// The numbers of the next bundle's first and last message.
    ///
    /// # Errors
    /// It has no numbers of its own and follows nothing, or they exceed those there are.
    pub fn number(&mut self, bundle: &Bundle<'_>) -> Result<Span, Fault> {
        self.number_head(bundle.head())
    }

    /// The same, of a bundle whose messages are not looked at yet.
    ///
    /// # Errors
    /// As for [`Numbering::number`].
    pub fn number_head(&mut self, bundle: &BundleHead<'_>) -> Result<Span, Fault> {
        let span = match (bundle.span(), self.next) {
            (Some(span), _) => span,
            (None, Some(first)) => {
                let last = first.checked_add(u64::from(bundle.count()).saturating_sub(1));
                Span {
                    first,
                    last: last.ok_or(Fault::Numbers)?,
                }
            }
            (None, None) => return Err(Fault::NoBase),
        };
        self.next = Some(span.last.checked_add(1).ok_or(Fault::Numbers)?);
        Ok(span)
    }
}
