//! Tests of `[server] tls`.

use std::fs;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_ED25519};

use super::*;

const RSA: [&str; 2] = [include_str!("tls/rsa.crt"), include_str!("tls/rsa.key")];
const EC: [&str; 2] = [include_str!("tls/ec.crt"), include_str!("tls/ec.key")];

/// A folder with a configuration, a certificate and a key. It is deleted on drop.
struct Folder(PathBuf);

impl Folder {
    fn new([cert, key]: [&str; 2]) -> Self {
        let folder = Self(temporary("d"));
        fs::create_dir(&folder.0).unwrap();
        folder.write("cert.pem", cert);
        folder.write("key.pem", key);
        folder
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self, tls: &str) -> Result<Config, String> {
        self.write("gateway.toml", &format!("\n[server]\ntls = {tls}\n"));
        let read = Config::read(&self.0.join("gateway.toml"), |_| None);
        read.map_err(|error| error.to_string())
    }

    fn certificate(&self) -> Certificate {
        self.read(TLS).unwrap().certificate.unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = fs::remove_dir_all(&self.0);
    }
}

const TLS: &str = "{ cert = 'cert.pem', key = 'key.pem' }";

#[test]
fn keys_of_each_form_are_read() {
    let generated = [&PKCS_ED25519, &PKCS_ECDSA_P384_SHA384].map(|algorithm| {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        [params.self_signed(&key).unwrap().pem(), key.serialize_pem()]
    });
    for (form, [cert, key]) in [
        ("RSA PRIVATE KEY", RSA),
        ("EC PRIVATE KEY", EC),
        ("PRIVATE KEY", generated[0].each_ref().map(String::as_str)),
        ("PRIVATE KEY", generated[1].each_ref().map(String::as_str)),
    ] {
        assert!(key.starts_with(&format!("-----BEGIN {form}-----")), "{key}");
        Folder::new([cert, key]).certificate();
    }
}

#[test]
fn one_file_may_have_the_certificate_and_the_key() {
    let folder = Folder::new([&EC.concat(), ""]);
    let config = folder.read("{ cert = 'cert.pem', key = 'cert.pem' }");
    assert!(config.unwrap().certificate.is_some());
}

#[test]
fn invalid_tls_error_names_line_file_and_key() {
    let half = |text: &'static str| &text[..text.len() / 2];
    let cases = [
        (
            [RSA[0], EC[1]],
            TLS,
            &["cert.pem", "key.pem", "does not belong"][..],
        ),
        (
            [EC[0], ""],
            TLS,
            &["`key`", "key.pem", "no whole private key"],
        ),
        (
            [EC[0], half(EC[1])],
            TLS,
            &["`key`", "key.pem", "no whole private key"],
        ),
        (
            [EC[0], EC[0]],
            TLS,
            &["`key`", "key.pem", "no whole private key"],
        ),
        (
            ["", EC[1]],
            TLS,
            &["`cert`", "cert.pem", "no whole certificate"],
        ),
        (
            [half(EC[0]), EC[1]],
            TLS,
            &["`cert`", "cert.pem", "no whole certificate"],
        ),
        (
            [
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                EC[1],
            ],
            TLS,
            &["`cert`", "cert.pem", "the first certificate is invalid"],
        ),
        (
            [
                EC[0],
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            ],
            TLS,
            &["`key`", "key.pem", "this key cannot be used"],
        ),
        (
            EC,
            "{ cert = 'x.pem', key = 'key.pem' }",
            &["`cert`", "x.pem", "No such file"],
        ),
        (
            EC,
            "{ cert = 'cert.pem', key = '.' }",
            &["`key`", "not a regular file"],
        ),
        (EC, "{ cert = 'cert.pem' }", &["missing field `key`"]),
        (
            EC,
            "{ certs = 'cert.pem', key = 'key.pem' }",
            &["unknown field `certs`"],
        ),
    ];
    for (files, tls, words) in cases {
        let folder = Folder::new(files);
        let error = folder
            .read(tls)
            .err()
            .unwrap_or_else(|| panic!("{tls}, {words:?}"));
        let mut expected = words.iter().chain(&["gateway.toml: line ", "server"]);
        assert!(
            expected.all(|word| error.contains(word)),
            "{words:?}: {error}"
        );
        assert!(!error.contains("AAAA") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn changed_files_are_parsed_again() {
    let folder = Folder::new(EC);
    let certificate = folder.certificate();
    assert!(certificate.reread().unwrap().is_none());
    folder.write("cert.pem", RSA[0]);
    let error = certificate.reread().unwrap_err().to_string();
    assert!(error.contains("does not belong"), "{error}");
    folder.write("key.pem", RSA[1]);
    let new = certificate.reread().unwrap().unwrap();
    assert!(!new.is_same(&certificate) && new.is_same(&folder.certificate()));
    assert!(new.reread().unwrap().is_none());
}
