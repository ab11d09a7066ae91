//! The fuzz target `controller`: see `sbp_fuzz::controller`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::controller::run(data));
