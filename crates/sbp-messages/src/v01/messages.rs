//! Which operation carries which message, in which role.

use bytes::{Bytes, BytesMut};
use sbp_frame::OpCode;

use super::template::{decode_templated, encode_templated};
use super::{decode, encode};
use crate::{
    AppendRequest, AppendResponse, CreateRangeRequest, CreateRangeResponse, CreateStreamsRequest,
    CreateStreamsResponse, DecodeError, DeleteStreamsRequest, DeleteStreamsResponse,
    DescribePlacementDriverClusterRequest, DescribePlacementDriverClusterResponse, DescribeRangesRequest,
    DescribeRangesResponse, DescribeStreamsRequest, DescribeStreamsResponse, Encoder, FetchRequest, FetchResponse,
    GoAway, HeartbeatRequest, HeartbeatResponse, IdAllocationRequest, IdAllocationResponse, ListRangesRequest,
    ListRangesResponse, Message, PlacementDriverCluster, Profile, ReportMetricsRequest, ReportMetricsResponse, Role,
    SealRangesRequest, SealRangesResponse, SyncRangesRequest, SyncRangesResponse, SystemErrorResponse,
    TrimStreamsRequest, TrimStreamsResponse, UpdateStreamsRequest, UpdateStreamsResponse, V01,
};

/// Declares which operation a struct belongs to, in which role, and that this profile encodes it.
macro_rules! messages {
    ($( $message:ident $opcode:ident $role:ident $encode:path, $decode:path; )*) => {
        $(
            impl Profile<$message> for V01 {
                fn encode(message: &$message, encoder: &mut Encoder, out: &mut BytesMut) {
                    $encode(message, encoder, out);
                }

                fn decode(header: &[u8]) -> Result<$message, DecodeError> {
                    $decode(header)
                }
            }

            impl Message for $message {
                const OPCODE: OpCode = OpCode::$opcode;
                const ROLE: Role = Role::$role;

                fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut) {
                    <V01 as Profile<Self>>::encode(self, encoder, out);
                }

                fn decode(header: &[u8]) -> Result<Self, DecodeError> {
                    <V01 as Profile<Self>>::decode(header)
                }
            }
        )*
    };
}

messages! {
    GoAway GOAWAY Request encode, decode;
    HeartbeatRequest HEARTBEAT Request encode, decode;
    HeartbeatResponse HEARTBEAT Response encode, decode;
    AppendRequest APPEND Request encode_templated, decode_templated;
    AppendResponse APPEND Response encode_templated, decode_templated;
    FetchRequest FETCH Request encode_templated, decode_templated;
    FetchResponse FETCH Response encode_templated, decode_templated;
    ListRangesRequest LIST_RANGES Request encode, decode;
    ListRangesResponse LIST_RANGES Response encode, decode;
    DescribeRangesRequest DESCRIBE_RANGES Request encode, decode;
    DescribeRangesResponse DESCRIBE_RANGES Response encode, decode;
    CreateStreamsRequest CREATE_STREAMS Request encode, decode;
    CreateStreamsResponse CREATE_STREAMS Response encode, decode;
    DescribeStreamsRequest DESCRIBE_STREAMS Request encode, decode;
    DescribeStreamsResponse DESCRIBE_STREAMS Response encode, decode;
    IdAllocationRequest ALLOCATE_ID Request encode, decode;
    IdAllocationResponse ALLOCATE_ID Response encode, decode;
    SealRangesRequest SEAL_RANGES Request encode, decode;
    SealRangesResponse SEAL_RANGES Response encode, decode;
    SyncRangesRequest SYNC_RANGES Request encode, decode;
    SyncRangesResponse SYNC_RANGES Response encode, decode;
    CreateRangeRequest CREATE_RANGE Request encode, decode;
    CreateRangeResponse CREATE_RANGE Response encode, decode;
    DeleteStreamsRequest DELETE_STREAMS Request encode, decode;
    DeleteStreamsResponse DELETE_STREAMS Response encode, decode;
    UpdateStreamsRequest UPDATE_STREAMS Request encode, decode;
    UpdateStreamsResponse UPDATE_STREAMS Response encode, decode;
    TrimStreamsRequest TRIM_STREAMS Request encode, decode;
    TrimStreamsResponse TRIM_STREAMS Response encode, decode;
    ReportMetricsRequest REPORT_METRICS Request encode, decode;
    ReportMetricsResponse REPORT_METRICS Response encode, decode;
    DescribePlacementDriverClusterRequest DESCRIBE_PD_CLUSTER Request encode, decode;
    DescribePlacementDriverClusterResponse DESCRIBE_PD_CLUSTER Response encode, decode;
}

/// No operation of its own: it answers any of them, so it is no [`Message`].
impl SystemErrorResponse {
    /// Appends the header's bytes to `out`.
    pub fn encode(&self, encoder: &mut Encoder, out: &mut BytesMut) {
        encode(self, encoder, out);
    }

    /// Reads the header of a system error.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are no such header. The call has ended all the same, and what became of it is
    /// unknown.
    pub fn decode(header: &[u8]) -> Result<Self, DecodeError> {
        decode(header)
    }
}

/// Its own root where it is a status's detail, and a part of DESCRIBE_PD_CLUSTER's answer.
impl PlacementDriverCluster {
    /// The bytes for [`Status::detail`](crate::Status::detail).
    #[must_use]
    pub fn to_detail(&self, encoder: &mut Encoder) -> Bytes {
        let mut out = BytesMut::new();
        encode(self, encoder, &mut out);
        out.freeze()
    }

    /// Reads a status's detail.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] when the bytes are no such root: the sender does not know the cluster.
    pub fn from_detail(detail: &[u8]) -> Result<Self, DecodeError> {
        decode(detail)
    }
}
