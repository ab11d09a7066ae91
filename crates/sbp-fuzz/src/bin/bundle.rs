//! The fuzz target `bundle`: see `sbp_fuzz::bundle`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::bundle::run(data));
