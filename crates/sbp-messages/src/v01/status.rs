//! The table of a status, which [`tables!`](super::tables) does not map.

use super::{Builder, Field, Wire, Written, fb};
use crate::{ErrorCode, Status};

// By hand, because two fields are read together: a local code is moved into the text.
impl Wire for Status {
    type Table<'a> = fb::Status<'a>;
    const NAME: &'static str = "Status";

    fn read(table: Self::Table<'_>) -> Self {
        let code = ErrorCode::from_wire(table.code().0);
        let message = String::read(table.message());
        let detail = Field::read(table.detail());
        if code.is_local() {
            // A peer must not send local codes. The number is kept in the text.
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
