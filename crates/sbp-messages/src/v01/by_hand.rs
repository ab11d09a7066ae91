//! The two tables that [`tables!`](super::tables) does not map.

use sbp_types::StreamId;

use super::{Builder, Field, Wire, Written, fb, message};
use crate::{DescribeStreamsRequest, ErrorCode, Status};

// By hand: what is read depends on two fields at once, since a code of this side is kept in the text.
impl Wire for Status {
    type Table<'a> = fb::Status<'a>;
    const NAME: &'static str = "Status";

    fn read(table: Self::Table<'_>) -> Self {
        let code = ErrorCode::from_wire(table.code().0);
        let message = String::read(table.message());
        let detail = Field::read(table.detail());
        if code.is_local() {
            // A peer must not speak for this side. Its number survives in the text.
            let message = format!("the peer's code {}: {message}", code.0);
            return Self {
                code: ErrorCode::UNKNOWN,
                message,
                detail,
            };
        }
        Self { code, message, detail }
    }

    fn write(&self, builder: &mut Builder) -> Written<Self> {
        let code = fb::ErrorCode(self.code.0);
        let message = self.message.write(builder);
        let detail = self.detail.write(builder);
        fb::Status::create(builder, &fb::StatusArgs { code, message, detail })
    }
}

// By hand: it writes the names, the vector of numbers, and then the vector of names, which is not field by field.
impl Wire for DescribeStreamsRequest {
    type Table<'a> = fb::DescribeStreamsRequest<'a>;
    const NAME: &'static str = "DescribeStreamsRequest";

    fn read(table: Self::Table<'_>) -> Self {
        let ids = table.stream_ids().into_iter().flatten();
        let names = table.names().into_iter().flatten();
        Self {
            timeout_ms: table.timeout_ms(),
            stream_ids: ids.map(StreamId).collect(),
            names: names.map(str::to_owned).collect(),
            limit: table.limit(),
            continuation: Field::read(table.continuation()),
        }
    }

    fn write(&self, builder: &mut Builder) -> Written<Self> {
        let ids: Vec<i64> = self.stream_ids.iter().map(|id| id.0).collect();
        let names: Vec<_> = self.names.iter().map(|name| builder.create_string(name)).collect();
        let args = fb::DescribeStreamsRequestArgs {
            timeout_ms: self.timeout_ms,
            stream_ids: (!ids.is_empty()).then(|| builder.create_vector(&ids)),
            names: (!names.is_empty()).then(|| builder.create_vector(&names)),
            limit: self.limit,
            continuation: self.continuation.write(builder),
        };
        fb::DescribeStreamsRequest::create(builder, &args)
    }
}

message! { DescribeStreamsRequest, request of DESCRIBE_STREAMS }
