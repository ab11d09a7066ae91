//! The fuzz target `session`: see `sbp_fuzz::session`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::session::run(data));
