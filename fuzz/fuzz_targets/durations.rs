//! The target `durations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forbear_fuzz::check("durations", data));
