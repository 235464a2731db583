//! TLS with a certificate authority made on the spot, whose certificate a client can be told to trust.

use std::io;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

use crate::provider::Http2;

pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) ca_pem: String,
}

pub(crate) fn make(names: &[String], http2: Http2) -> io::Result<Tls> {
    let mut ca = CertificateParams::new(Vec::new()).map_err(io::Error::other)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    ca.distinguished_name.push(DnType::CommonName, "Forbear lab: trust in tests only");
    let ca_key = KeyPair::generate().map_err(io::Error::other)?;
    let issuer = CertifiedIssuer::self_signed(ca, ca_key).map_err(io::Error::other)?;

    let mut leaf = CertificateParams::new(names.to_vec()).map_err(io::Error::other)?;
    leaf.distinguished_name.push(DnType::CommonName, "Forbear lab provider");
    leaf.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    leaf.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(io::Error::other)?;

    let crypto = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = rustls::ServerConfig::builder_with_provider(crypto)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .map_err(io::Error::other)?;
    config.alpn_protocols = match http2 {
        Http2::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Http2::Off => vec![b"http/1.1".to_vec()],
        Http2::Only => vec![b"h2".to_vec()],
    };
    Ok(Tls {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        ca_pem: AsRef::<rcgen::Certificate>::as_ref(&issuer).pem(),
    })
}
