//! The fuzz target `tank`: see `sbp_fuzz::tank`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::tank::run(data));
