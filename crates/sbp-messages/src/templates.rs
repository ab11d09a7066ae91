//! The messages that have a template, and the positions of the scalars in their entries.

use bytes::BytesMut;
use sbp_types::TimestampMs;

use crate::v01::template::blocks::block;
use crate::v01::template::{Templated, read, shape, write};
use crate::{
    AppendInfo, AppendRequest, AppendResponse, AppendResult, FetchInfo, FetchRequest, FetchResponse, FetchResult,
    ReplicaEntry, Status,
};

block! { AppendInfo 40 {
    request_index 4 batch_length 8 range_index 12 stream_id 16 epoch 24 expected_offset 32
} append_time_ms = TimestampMs(0), confirmed = None, entry = ReplicaEntry::NONE, sealed_end = None, marks = 0 }

block! { FetchInfo 48 {
    request_index 4 batch_max_bytes 8 stream_id 16 fetch_offset 24 end_offset 32 start_timestamp_ms 40
} }

block! { AppendResult 56 {
    request_index 4 duplicate 12 stream_id 16 base_offset 24 stream_append_time_ms 32 next_offset 40 next_sequence 48
} status = Status::success(), next_marks = 0 }

block! { FetchResult 64 {
    request_index 4 batch_length 8 end_of_range 16 record_count 20 stream_id 24 base_offset 32 next_offset 40
    start_offset 48 high_watermark 56
} status = Status::success() }

impl Templated for AppendRequest {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        if !self.append_requests.iter().all(AppendInfo::is_from_client) {
            return None;
        }
        let scalars = [self.timeout_ms];
        write::request(&shape::APPEND_REQUEST, scalars, &self.append_requests, out)
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let ([timeout_ms], append_requests) = read::request(&shape::APPEND_REQUEST, header)?;
        Some(Self {
            timeout_ms,
            append_requests,
        })
    }
}

impl Templated for FetchRequest {
    fn write_template(&self, out: &mut BytesMut) -> Option<()> {
        if self.withdraw != 0 {
            return None;
        }
        let scalars = [self.max_wait_ms, self.min_bytes, self.max_bytes];
        write::request(&shape::FETCH_REQUEST, scalars, &self.fetch_requests, out)
    }

    fn read_template(header: &[u8]) -> Option<Self> {
        let ([max_wait_ms, min_bytes, max_bytes], fetch_requests) = read::request(&shape::FETCH_REQUEST, header)?;
        Some(Self {
            max_wait_ms,
            min_bytes,
            fetch_requests,
            max_bytes,
            withdraw: 0,
        })
    }
}

/// Responses, which have a template while every status is success and no entry has what only servers tell each other.
macro_rules! responses {
    ($($name:ident.$field:ident by $shape:ident if $plain:expr;)*) => { $(
        impl Templated for $name {
            fn write_template(&self, out: &mut BytesMut) -> Option<()> {
                let plain = $plain;
                let mut results = self.$field.iter();
                if !self.status.is_plain_success()
                    || !results.all(|result| result.status.is_plain_success() && plain(result))
                {
                    return None;
                }
                write::response(&shape::$shape, self.throttle_time_ms, &self.$field, out)
            }

            fn read_template(header: &[u8]) -> Option<Self> {
                let (throttle_time_ms, $field) = read::response(&shape::$shape, header)?;
                Some(Self {
                    throttle_time_ms,
                    $field,
                    ..Self::default()
                })
            }
        }
    )* };
}

responses! {
    AppendResponse.append_responses by APPEND_RESPONSE if |result: &AppendResult| result.next_marks == 0;
    FetchResponse.fetch_responses by FETCH_RESPONSE if |_: &FetchResult| true;
}
