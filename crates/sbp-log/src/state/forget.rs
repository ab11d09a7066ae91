//! Makes the log forget writers, so that a test can show that it would notice.

use sbp_types::{Offset, RangeKey};

use crate::ForgetWriters;
use crate::state::shared::{Shared, State};

impl Shared {
    /// Forgets writers after recovery, as configured.
    pub(crate) fn forget_at_start(&self) {
        let state = &mut *self.state.write();
        let State { index, writers, .. } = state;
        match self.config.forget_writers {
            ForgetWriters::Never => {}
            ForgetWriters::AtStart => writers.forget_where(|_| true),
            ForgetWriters::OnRelease => writers.forget_where(|writer| {
                let range = index.get(writer.last_range);
                range.is_none_or(|range| range.released >= writer.last_offset)
            }),
        }
    }

    /// Forgets writers after a release, as configured.
    pub(crate) fn forget_released(&self, state: &mut State, key: RangeKey, below: Offset) {
        if self.config.forget_writers == ForgetWriters::OnRelease {
            let gone = |range: RangeKey, end: Offset| range == key && end <= below;
            state
                .writers
                .forget_where(|writer| gone(writer.last_range, writer.last_offset));
        }
    }
}
