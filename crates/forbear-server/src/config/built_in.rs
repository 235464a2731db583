//! The contracts that ship, as they stand in `providers/`.

/// Name and text of each.
pub(super) const CONTRACTS: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../../../providers/anthropic.yaml")),
    ("github", include_str!("../../../../providers/github.yaml")),
    ("openai", include_str!("../../../../providers/openai.yaml")),
    ("stripe", include_str!("../../../../providers/stripe.yaml")),
];
