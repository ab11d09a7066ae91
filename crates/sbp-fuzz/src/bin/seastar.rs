//! The fuzz target `seastar`: see `sbp_fuzz::seastar`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sbp_fuzz::seastar::run(data));
