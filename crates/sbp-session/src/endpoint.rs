//! A session as its driver knows it.

use std::io::{self, IoSlice};
use std::time::Instant;

use bytes::{BytesMut, buf::Limit};
use sbp_wire::{Endpoint, Reason};

use crate::{CloseReason, Event, Session};

impl Endpoint for Session {
    type Event = Event;
    type Reason = CloseReason;

    #[inline]
    fn recv_buffer(&mut self) -> Limit<&mut BytesMut> {
        Self::recv_buffer(self)
    }

    #[inline]
    fn wants_read(&self) -> bool {
        Self::wants_read(self)
    }

    #[inline]
    fn handle_received(&mut self, count: usize, now: Instant) {
        Self::handle_received(self, count, now);
    }

    fn handle_eof(&mut self, now: Instant) {
        Self::handle_eof(self, now);
    }

    #[inline]
    fn note_nothing_to_read(&mut self) {
        Self::note_nothing_to_read(self);
    }

    #[inline]
    fn is_mid_frame(&self) -> bool {
        Self::is_mid_frame(self)
    }

    #[inline]
    fn frames_in(&self) -> u64 {
        self.stats().frames_in
    }

    #[inline]
    fn transmit<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        Self::transmit(self, slices)
    }

    #[inline]
    fn transmit_len(&self) -> usize {
        Self::transmit_len(self)
    }

    #[inline]
    fn handle_written(&mut self, count: usize, now: Instant) {
        Self::handle_written(self, count, now);
    }

    #[inline]
    fn bytes_out(&self) -> u64 {
        self.stats().bytes_out
    }

    #[inline]
    fn note_time(&mut self, now: Instant) {
        Self::note_time(self, now);
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    #[inline]
    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        Self::poll_event(self)
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        Self::held_bytes(self)
    }

    #[inline]
    fn set_tight(&mut self, tight: bool, now: Instant) {
        Self::set_tight(self, tight, now);
    }

    #[inline]
    fn is_tight(&self) -> bool {
        Self::is_tight(self)
    }

    #[inline]
    fn peer_calls(&self) -> usize {
        Self::peer_calls(self)
    }

    fn is_authenticated(&self) -> bool {
        Self::is_authenticated(self)
    }

    fn handle_transport_error(&mut self, error: io::Error, now: Instant) {
        Self::handle_transport_error(self, error, now);
    }

    fn close(&mut self) {
        Self::close(self);
    }

    #[inline]
    fn is_closed(&self) -> bool {
        Self::is_closed(self)
    }

    fn close_reason(&self) -> Option<&CloseReason> {
        Self::close_reason(self)
    }
}

impl Reason for CloseReason {
    fn local() -> Self {
        Self::Local
    }

    fn lingers(&self) -> bool {
        !matches!(self, Self::NotSbp | Self::Transport(_) | Self::Stalled(_))
    }

    fn is_orderly(&self) -> bool {
        matches!(self, Self::Local | Self::WentAway)
    }

    fn is_tls(&self) -> bool {
        matches!(self, Self::SpeaksTls)
    }
}
