//! The fuzz target `pravega`: see `sbp_fuzz::pravega`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::pravega::run(data));
