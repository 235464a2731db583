//! The target `idempotency_key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| forbear_fuzz::check("idempotency_key", data));
