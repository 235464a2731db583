//! Whose a call is: the credential's, and the account that this is or has a part in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forbear_core::ids::{ScopeId, TenantId};
use http::HeaderMap;
use zeroize::Zeroizing;

use super::Gateway;
use super::table::Provider;

/// The home scope: provider and a keyed digest of the credential, or the account that it shares with others. Then it is a
/// tenant there.
pub(super) fn account(gateway: &Gateway, provider: &Provider, fields: &HeaderMap) -> (ScopeId, Option<TenantId>) {
    let name = provider.compiled.name.as_str();
    let credential = provider.credentials.iter().find_map(|h| fields.get(h));
    let Some(value) = credential else { return (ScopeId::new(&format!("{name}/anonymous")), None) };
    let digest = gateway.keys.account(name, &secret_of(value.as_bytes()));
    let own = [name, "/", &digest].concat();
    match provider.compiled.accounts.get(&digest) {
        Some(shared) => (shared.clone(), Some(TenantId::new(&own))),
        None => (ScopeId::new(&own), None),
    }
}

/// Who holds a credential of a provider, for those who ask about their own actions.
pub fn owner_of(gateway: &Gateway, provider: &str, fields: &HeaderMap) -> Option<TenantId> {
    let (scope, tenant) = account(gateway, gateway.table().provider(provider)?, fields);
    Some(tenant.unwrap_or(TenantId(scope.0)))
}

/// The secret of a credential, however it is spelled: one key is one account. The scheme is left out, of `Basic` the user
/// alone counts where there is no password, as with services whose key may be sent either way, and of a signature who
/// signed.
fn secret_of(value: &[u8]) -> Zeroizing<Vec<u8>> {
    let value = value.trim_ascii();
    let (scheme, rest) = match value.iter().position(|b| *b == b' ') {
        Some(at) => (&value[..at], value[at..].trim_ascii()),
        None => return Zeroizing::new(value.to_vec()),
    };
    if scheme.eq_ignore_ascii_case(b"basic")
        && let Ok(pair) = STANDARD.decode(rest)
    {
        let pair = Zeroizing::new(pair);
        return Zeroizing::new(pair.strip_suffix(b":").unwrap_or(&pair).to_vec());
    }
    if scheme.eq_ignore_ascii_case(b"aws4-hmac-sha256")
        && let Some(account) = signer(rest)
    {
        return Zeroizing::new(account);
    }
    let is_known = [b"bearer".as_slice(), b"token", b"apikey", b"key"].iter().any(|s| scheme.eq_ignore_ascii_case(s));
    Zeroizing::new(if is_known { rest } else { value }.to_vec())
}

/// Who signed, for which region and service: `Credential=KEY/20260101/us-east-1/s3/aws4_request` without its day. A signature
/// is another one each call, and no account.
fn signer(fields: &[u8]) -> Option<Vec<u8>> {
    let credential = fields.split(|b| *b == b',').find_map(|field| field.trim_ascii().strip_prefix(b"Credential="))?;
    let parts = credential.split(|b| *b == b'/').enumerate().filter(|(at, _)| *at != 1).map(|(_, part)| part);
    Some(parts.collect::<Vec<_>>().join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_account_that_signed() {
        let signed = |day: &str, region: &str, signature: &str| {
            let value = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/{day}/{region}/bedrock/aws4_request, SignedHeaders=host;x-amz-date, \
                 Signature={signature}"
            );
            secret_of(value.as_bytes()).to_vec()
        };
        let one = signed("20260101", "us-east-1", "aa");
        assert_eq!(one, b"AKIDEXAMPLE/us-east-1/bedrock/aws4_request");
        assert_eq!(one, signed("20260102", "us-east-1", "bb"));
        assert_ne!(one, signed("20260101", "eu-west-1", "aa"));
        assert_eq!(secret_of(b"AWS4-HMAC-SHA256 Signature=aa").to_vec(), b"AWS4-HMAC-SHA256 Signature=aa");
    }
}
