//! Clients: of servers that do what a test tells them frame by frame, and of real ones.

#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod closing;
mod cursor;
mod end_to_end;
mod faults;
mod goaway;
mod many_streams;
mod outcomes;
mod reading;
mod routes;
mod routing;
mod silent;
mod tailing;
mod withdraw;
mod writer;

mod child {
    #[test]
    #[ignore = "the server process that tests start"]
    fn serve_until_killed() {
        sbp_e2e::process::serve_until_killed();
    }
}
