//! The values of SOPS: `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use openssl::cipher::Cipher;
use openssl::cipher_ctx::CipherCtx;

use crate::node::Node;

/// The beginning of an encrypted value.
pub(crate) const BEGIN: &str = "ENC[AES256_GCM,";
/// The lengths of keys, and of tags.
const KEY: usize = 32;
const TAG: usize = 16;

/// Whether a text is an encrypted comment.
pub(crate) fn is_comment(text: &str) -> bool {
    text.starts_with(BEGIN) && text.ends_with(",type:comment]")
}

/// The value of a text that a key encrypted, with additional data. `None` if it cannot be decrypted.
///
/// The nonces of SOPS have 32 bytes, which `ring` does not take.
pub(crate) fn decrypt(text: &str, key: &[u8], additional: &str) -> Option<Node> {
    let parts = text.strip_prefix(BEGIN)?.strip_suffix(']')?;
    let mut parts = parts.split(',');
    let mut part = |name: &str| parts.next()?.strip_prefix(name)?.strip_prefix(':');
    let (data, iv, tag, kind) = (part("data")?, part("iv")?, part("tag")?, part("type")?);
    let decoded = |text: &str| STANDARD.decode(text).ok();
    let (data, iv, tag) = (decoded(data)?, decoded(iv)?, decoded(tag)?);
    let clear = open(key, &iv, &tag, additional.as_bytes(), &data)?;
    let text = String::from_utf8(clear).ok()?;
    Some(match kind {
        "str" | "bytes" | "comment" | "time" => Node::Text(text),
        "int" => Node::Int(text.parse().ok()?),
        "float" => Node::Float(text.parse().ok()?),
        "bool" => Node::Bool(match text.as_str() {
            "True" | "true" => true,
            "False" | "false" => false,
            _ => return None,
        }),
        _ => return None,
    })
}

fn open(key: &[u8], iv: &[u8], tag: &[u8], additional: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    // OpenSSL takes other lengths as well.
    if key.len() != KEY || tag.len() != TAG || !(12..=64).contains(&iv.len()) {
        return None;
    }
    let mut context = CipherCtx::new().ok()?;
    context.decrypt_init(Some(Cipher::aes_256_gcm()), None, None).ok()?;
    context.set_iv_length(iv.len()).ok()?;
    context.decrypt_init(None, Some(key), Some(iv)).ok()?;
    context.set_tag(tag).ok()?;
    context.cipher_update(additional, None).ok()?;
    let mut clear = Vec::new();
    context.cipher_update_vec(data, &mut clear).ok()?;
    context.cipher_final_vec(&mut clear).ok()?;
    Some(clear)
}
