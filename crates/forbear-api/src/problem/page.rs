//! The pages of the problem types: one as plain text under its own address, all of them as `docs/problems.md`.

use std::fmt::Write as _;

use super::Kind;

impl Kind {
    /// What `GET /-/problems/<slug>` answers.
    #[must_use]
    pub fn page(self) -> String {
        format!(
            "{}\n\ntype    {}\nstatus  {}\n\nWhat happened\n  {}\n\nWhat to do\n  {}\n\nSafe next steps\n  {}\n",
            self.title(),
            self.uri(),
            self.status_text(),
            self.what_happened(),
            self.what_to_do(),
            self.safe_next_text(),
        )
    }

    fn safe_next_text(self) -> String {
        if self.safe_next().is_empty() { "as the answer says".to_owned() } else { self.safe_next().join(", ") }
    }
}

/// `docs/problems.md`, whole.
#[must_use]
pub fn problems_page() -> String {
    let mut page = String::from(INTRODUCTION);
    for kind in Kind::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n`{}`, status {}.\n\n{}\n\n**What to do.** {}\n\n**Safe next:** {}.\n",
            kind.title(),
            kind.uri(),
            kind.status_text(),
            kind.what_happened(),
            kind.what_to_do(),
            kind.safe_next_text(),
        );
    }
    page
}

const INTRODUCTION: &str = "\
# Problems

What Forbear says itself is `application/problem+json` (RFC 9457). Each `type` below is also a page of the running
server. This page is written from the code; `FORBEAR_BLESS=1 cargo test -p forbear-api` writes it anew.

Every problem has these members beside those of RFC 9457:

| member | meaning |
|---|---|
| `action` | the action to look at: this one, or the open one that this call repeats |
| `outcome` | how the action ends or stands |
| `sent` | whether a byte of the request may have left for the provider |
| `answered` | whether the provider answered at least once |
| `effect` | `applied`, `not_applied` or `unknown` |
| `attempts` | sends of this action, all of them |
| `waited_ms` | time that this action waited |
| `next_allowed_at` | when the provider may be called again, where that is known |
| `safe_next` | what may be done now, in the order of preference (below) |
| `reason` | why it ended here |
| `provider_status`, `provider_code` | the provider's last word |

`safe_next` is a list of these:

| value | meaning |
|---|---|
| `call_again` | nothing was done; the same call may be made again at `next_allowed_at`, or now where there is none |
| `call_again_with_same_key` | the same call with the same idempotency key |
| `look_up_at_provider` | look at the provider whether it was done, before anything else |
| `watch_action` | follow the action at its address |
| `ask_a_person` | a person must raise a budget, a quota or a deadline |
| `change_the_request` | change the request: it will fail again unchanged |

Where a provider's own clients read an error member, it is there too (`error` for OpenAI, Anthropic and Stripe, `message`
for GitHub), and its message names the effect, the attempts, the safe next steps and the action.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_in_docs_is_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/problems.md");
        if std::env::var_os("FORBEAR_BLESS").is_some() {
            std::fs::write(path, problems_page()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == problems_page(),
            "docs/problems.md is not what the code says; write it with FORBEAR_BLESS=1"
        );
    }

    #[test]
    fn a_page_says_what_happened_and_what_to_do() {
        let page = Kind::OutcomeUnknown.page();
        for part in ["/-/problems/outcome_unknown", "What happened", "What to do", "look_up_at_provider"] {
            assert!(page.contains(part), "{page}");
        }
    }
}
