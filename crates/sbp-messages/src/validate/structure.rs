//! Faults of a message as a whole.

use crate::{
    AppendRequest, ClientRole, CreateRangeRequest, CreateStreamsRequest, DeleteStreamsRequest, DescribeRangesRequest,
    DescribeStreamsRequest, FetchRequest, FetchResponse, HeartbeatRequest, IdAllocationRequest, ListRangesRequest,
    Refusal, ReportMetricsRequest, SealKind, SealRangesRequest, ServerState, SyncRangesRequest, TrimStreamsRequest,
    UpdateStreamsRequest,
};

/// The most entries of a request; in DESCRIBE_STREAMS ids and names together.
pub const MAX_ENTRIES: usize = 1_024;

impl AppendRequest {
    /// Judges the request against its payload of `payload_length` bytes.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there are no entries or too many, an index names no entry or one twice, an offset is impossible,
    /// or the lengths do not add up to the payload.
    pub fn validate(&self, payload_length: usize) -> Result<(), Refusal> {
        require_entries("append_requests", self.append_requests.len())?;
        let mut indices = Indices::new(self.append_requests.len());
        let mut sum = 0_u64;
        for entry in &self.append_requests {
            indices.take(entry.request_index)?;
            sum += length("batch_length", entry.batch_length)?;
            at_least("expected_offset", entry.expected_offset.map_or(0, |offset| offset.0), 0)?;
        }
        expect_sum(sum, payload_length)
    }
}

impl FetchRequest {
    /// Judges the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there are no entries or too many, an index names no entry or one twice, or a size or an offset
    /// is impossible; or when the request withdraws a call and has entries too.
    pub fn validate(&self) -> Result<(), Refusal> {
        at_least("withdraw", self.withdraw, 0)?;
        if let Some(call) = self.withdrawn() {
            let (field, value) = ("withdraw", call.into());
            return match self.fetch_requests.len() {
                0 => Ok(()),
                _ => Err(Refusal::OutOfRange { field, value }),
            };
        }
        require_entries("fetch_requests", self.fetch_requests.len())?;
        at_least("min_bytes", self.min_bytes, 0)?;
        at_least("max_bytes", self.max_bytes, 0)?;
        let mut indices = Indices::new(self.fetch_requests.len());
        for entry in &self.fetch_requests {
            indices.take(entry.request_index)?;
            at_least("fetch_offset", entry.fetch_offset.0, -2)?;
            at_least("batch_max_bytes", entry.batch_max_bytes, -1)?;
        }
        Ok(())
    }
}

impl FetchResponse {
    /// Checks one frame of an answer against its payload of `payload_length` bytes.
    ///
    /// Which entries it answers is not checked, because only the caller knows what was requested.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when a length or a count is negative, or the lengths do not add up to the payload. None of the bytes
    /// may be used then.
    pub fn validate(&self, payload_length: usize) -> Result<(), Refusal> {
        let mut sum = 0_u64;
        for result in &self.fetch_responses {
            sum += length("batch_length", result.batch_length)?;
            at_least("record_count", result.record_count, 0)?;
        }
        expect_sum(sum, payload_length)
    }
}

impl ListRangesRequest {
    /// Judges the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there are no criteria or too many, or the limit is negative.
    pub fn validate(&self) -> Result<(), Refusal> {
        require_entries("range_criteria", self.range_criteria.len())?;
        at_least("limit", self.limit, 0)
    }
}

/// Requests of which only the number of entries is checked as a whole.
macro_rules! entries {
    ($($request:ident.$field:ident $(and $term:ident)?;)*) => {
        $(
            impl $request {
                /// Judges the request.
                ///
                /// # Errors
                ///
                /// [`Refusal`] when there are no entries or too many, or a number is impossible.
                pub fn validate(&self) -> Result<(), Refusal> {
                    $( at_least(stringify!($term), self.$term, 0)?; )?
                    require_entries(stringify!($field), self.$field.len())
                }
            }
        )*
    };
}

entries! {
    DescribeRangesRequest.ranges;
    SyncRangesRequest.stream_ranges and term;
    CreateStreamsRequest.streams;
    DeleteStreamsRequest.streams and term;
    UpdateStreamsRequest.streams;
    TrimStreamsRequest.trimmed_streams;
}

impl SealRangesRequest {
    /// Checks the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there are no entries or too many, the kind is unknown, the term is negative, or there is no such
    /// server as one that is to be avoided.
    pub fn validate(&self) -> Result<(), Refusal> {
        require_entries("ranges", self.ranges.len())?;
        limit_entries(self.avoid.len())?;
        at_least("term", self.term, 0)?;
        for server in &self.avoid {
            at_least("avoid", server.0, 1)?;
        }
        one_of("kind", self.kind.0, SealKind::PLACEMENT_DRIVER.0)
    }
}

impl ReportMetricsRequest {
    /// Checks the request. Figures that cannot be are taken for unknown, not refused.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when an unknown state is wanted of the server.
    pub fn validate(&self) -> Result<(), Refusal> {
        one_of("wanted", self.wanted.0, ServerState::DRAINING.0)
    }
}

impl HeartbeatRequest {
    /// Checks the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when the role is unknown.
    pub fn validate(&self) -> Result<(), Refusal> {
        one_of("client_role", self.client_role.0, ClientRole::CLIENT.0)
    }
}

impl CreateRangeRequest {
    /// Judges the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when it names no range.
    pub fn validate(&self) -> Result<(), Refusal> {
        require("range", self.range.is_some())
    }
}

impl IdAllocationRequest {
    /// Checks the request.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when `host` is empty.
    pub fn validate(&self) -> Result<(), Refusal> {
        require("host", !self.host.is_empty())
    }
}

impl DescribeStreamsRequest {
    /// Whether the request names no stream and so asks for a list of all.
    #[must_use]
    pub fn is_list(&self) -> bool {
        self.stream_ids.is_empty() && self.names.is_empty()
    }

    /// Checks the request. The limit is checked only for a list, where it is used.
    ///
    /// # Errors
    ///
    /// [`Refusal`] when there are too many ids and names, or the limit of a list is negative.
    pub fn validate(&self) -> Result<(), Refusal> {
        if self.is_list() {
            return at_least("limit", self.limit, 0);
        }
        limit_entries(self.stream_ids.len().saturating_add(self.names.len()))
    }
}

fn require_entries(field: &'static str, count: usize) -> Result<(), Refusal> {
    require(field, count > 0)?;
    limit_entries(count)
}

fn require(field: &'static str, is_there: bool) -> Result<(), Refusal> {
    if is_there {
        Ok(())
    } else {
        Err(Refusal::Missing { field })
    }
}

fn limit_entries(count: usize) -> Result<(), Refusal> {
    if count > MAX_ENTRIES {
        Err(Refusal::TooManyEntries {
            count,
            limit: MAX_ENTRIES,
        })
    } else {
        Ok(())
    }
}

fn at_least<T: Into<i64>>(field: &'static str, value: T, least: i64) -> Result<(), Refusal> {
    let value = value.into();
    if value < least {
        Err(Refusal::OutOfRange { field, value })
    } else {
        Ok(())
    }
}

/// Checks the value of an enumeration whose values begin at 0.
fn one_of(field: &'static str, value: i8, last: i8) -> Result<(), Refusal> {
    if (0..=last).contains(&value) {
        Ok(())
    } else {
        Err(Refusal::OutOfRange {
            field,
            value: value.into(),
        })
    }
}

/// Converts a length to an unsigned number. The sum of 2^32 of them fits into 64 bits.
fn length(field: &'static str, value: i32) -> Result<u64, Refusal> {
    u64::try_from(value).map_err(|_| Refusal::OutOfRange {
        field,
        value: value.into(),
    })
}

fn expect_sum(sum: u64, payload: usize) -> Result<(), Refusal> {
    if u64::try_from(payload) == Ok(sum) {
        Ok(())
    } else {
        Err(Refusal::LengthMismatch { sum, payload })
    }
}

/// The `request_index` values seen so far, one bit for each entry.
struct Indices {
    seen: [u64; MAX_ENTRIES / 64],
    entries: usize,
}

impl Indices {
    /// For a request with `entries` entries, at most [`MAX_ENTRIES`].
    fn new(entries: usize) -> Self {
        Self {
            seen: [0; MAX_ENTRIES / 64],
            entries,
        }
    }

    fn take(&mut self, index: i32) -> Result<(), Refusal> {
        let outside = Refusal::IndexOutOfRange {
            index,
            entries: self.entries,
        };
        let place = usize::try_from(index)
            .ok()
            .filter(|place| *place < self.entries)
            .ok_or(outside)?;
        let word = self.seen.get_mut(place / 64).ok_or(outside)?;
        let bit = 1 << (place % 64);
        if *word & bit != 0 {
            return Err(Refusal::IndexTwice { index });
        }
        *word |= bit;
        Ok(())
    }
}
