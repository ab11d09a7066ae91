//! Headers that answer no call of their own: GOAWAY and system errors.

use flatbuffers::WIPOffset;

use super::shared::read_status;
use super::{Builder, Wire, fb};
use crate::{GoAway, SystemErrorResponse};

impl Wire for GoAway {
    type Table<'a> = fb::GoAway<'a>;
    const NAME: &'static str = "GoAway";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            status: read_status(table.status()),
            grace_ms: table.grace_ms(),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        fb::GoAway::create(
            builder,
            &fb::GoAwayArgs {
                status,
                grace_ms: self.grace_ms,
            },
        )
    }
}

impl Wire for SystemErrorResponse {
    type Table<'a> = fb::SystemErrorResponse<'a>;
    const NAME: &'static str = "SystemErrorResponse";

    fn read(table: Self::Table<'_>) -> Self {
        Self {
            status: read_status(table.status()),
        }
    }

    fn write(&self, builder: &mut Builder) -> WIPOffset<Self::Table<'static>> {
        let status = Some(self.status.write(builder));
        fb::SystemErrorResponse::create(builder, &fb::SystemErrorResponseArgs { status })
    }
}
