//! From a step of the scenario to what is sent: a head, pieces of content with their gaps, and where it is cut.
//!
//! It is pure, so that both HTTP versions send the same thing and break at the same place.

use std::io::Write as _;
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::arrival::Fate;
use super::request::Pairs;
use super::scenario::step::{At, End, Event, Framing, Step};
use super::template::{Context, http_date, spread};

/// Large contents go out in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;

#[derive(Debug, Clone, Default)]
pub(crate) struct Rendered {
    pub(crate) status: u16,
    pub(crate) reason: Option<String>,
    pub(crate) headers: Pairs,
    pub(crate) informational: Vec<(u16, Pairs, Duration)>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) trailers: Pairs,
    pub(crate) framing: Framing,
    pub(crate) declared_bytes: Option<u64>,
    pub(crate) delay: Duration,
    /// Sent as it stands instead of everything above.
    pub(crate) raw: Option<Bytes>,
    pub(crate) cut: Option<Cut>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) gap: Duration,
    pub(crate) bytes: Bytes,
    pub(crate) ends_event: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) end: End,
    pub(crate) fate: Fate,
    /// Bytes of the head after which it ends; otherwise it ends after the last piece.
    pub(crate) head_bytes: Option<u64>,
}

impl Rendered {
    pub(crate) fn content_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes.len() as u64).sum()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Ends this answer where the step's fault says.
    pub(crate) fn cut_by(&mut self, step: &Step) {
        let Some(fault) = &step.fault else { return };
        match fault.at {
            At::MidHead => {
                let (end, fate) = (fault.end.clone(), Fate::DroppedMidHead);
                self.cut = Some(Cut { end, fate, head_bytes: fault.after_bytes });
            }
            At::MidBody => {
                let mut left = usize::try_from(fault.after_bytes.unwrap_or(0)).unwrap_or(usize::MAX);
                self.keep_pieces(fault.end.clone(), Fate::DroppedMidBody, |piece| {
                    piece.bytes.truncate(left);
                    left -= piece.bytes.len();
                    !piece.bytes.is_empty()
                });
            }
            At::MidStream => {
                let mut left = fault.after_events.unwrap_or(0);
                self.keep_pieces(fault.end.clone(), Fate::DroppedMidStream, |piece| {
                    let kept = left > 0;
                    left -= u64::from(kept && piece.ends_event);
                    kept
                });
            }
            At::AfterHead | At::AfterBody | At::AfterCommit | At::AfterAnswer => {}
        }
    }

    fn keep_pieces(&mut self, end: End, fate: Fate, keep: impl FnMut(&mut Piece) -> bool) {
        if self.declared_bytes.is_none() && self.framing == Framing::Length {
            self.declared_bytes = Some(self.content_bytes());
        }
        self.pieces.retain_mut(keep);
        self.trailers.clear();
        self.cut = Some(Cut { end, fate, head_bytes: None });
    }
}

pub(crate) fn render(step: &Step, context: &mut Context<'_>) -> Rendered {
    let spread_ms = spread(context.arrival) % (step.delay_spread_ms + 1);
    let delay = Duration::from_millis(step.delay_ms + spread_ms);
    if let Some(raw) = &step.raw {
        let raw = Some(Bytes::from(raw.render(context)));
        return Rendered { status: step.status, raw, delay, ..Rendered::default() };
    }
    let mut headers = fields(&step.headers.0, context);
    let (pieces, kind) = content(step, context);
    let lacks =
        |headers: &[(String, String)], name: &str| !headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    if let Some(kind) = kind
        && lacks(&headers, "content-type")
    {
        headers.push(("Content-Type".to_owned(), kind.to_owned()));
    }
    if step.gzip && lacks(&headers, "content-encoding") {
        headers.push(("Content-Encoding".to_owned(), "gzip".to_owned()));
    }
    if step.date && lacks(&headers, "date") {
        headers.push(("Date".to_owned(), http_date(context.wall_ms)));
    }
    let trailers = fields(&step.trailers.0, context);
    if !trailers.is_empty() && lacks(&headers, "trailer") {
        let names: Vec<&str> = trailers.iter().map(|(name, _)| name.as_str()).collect();
        headers.push(("Trailer".to_owned(), names.join(", ")));
    }
    let framing = match step.framing {
        Framing::Auto if !step.events.is_empty() || !trailers.is_empty() => Framing::Chunked,
        Framing::Auto => Framing::Length,
        chosen => chosen,
    };
    let informational = step
        .informational
        .iter()
        .map(|head| (head.status, fields(&head.headers.0, context), Duration::from_millis(head.delay_ms)));
    Rendered {
        status: step.status,
        reason: step.reason.clone(),
        informational: informational.collect(),
        headers,
        pieces,
        trailers,
        framing,
        declared_bytes: step.content_length,
        delay,
        raw: None,
        cut: None,
    }
}

pub(crate) fn fields(fields: &[(String, super::template::Template)], context: &mut Context<'_>) -> Pairs {
    fields.iter().map(|(name, value)| (name.clone(), value.render(context))).collect()
}

/// The pieces, and the content type they suggest.
fn content(step: &Step, context: &mut Context<'_>) -> (Vec<Piece>, Option<&'static str>) {
    use super::scenario::values::Json;
    if !step.events.is_empty() {
        return (events(step, context), Some("text/event-stream"));
    }
    let (bytes, kind) = match (&step.body, &step.base64, step.bytes) {
        (Some(Json::Text(text)), ..) => (Bytes::from(text.render(context)), Some("text/plain; charset=utf-8")),
        (Some(json), ..) => (Bytes::from(json.render(context)), Some("application/json")),
        (_, Some(text), _) => {
            let decoded = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
            (Bytes::from(decoded), Some("application/octet-stream"))
        }
        (_, _, Some(len)) => (pattern(len), Some("application/octet-stream")),
        _ => (Bytes::new(), None),
    };
    let bytes = if step.gzip { gzip(&bytes) } else { bytes };
    let gap = Duration::from_millis(step.chunk_gap_ms);
    let mut pieces = split(&bytes, step.chunk_bytes.unwrap_or(PIECE_BYTES), gap);
    if let Some(first) = pieces.first_mut() {
        first.gap = Duration::ZERO;
    }
    (pieces, kind)
}

fn split(bytes: &Bytes, piece_bytes: usize, gap: Duration) -> Vec<Piece> {
    let starts = (0..bytes.len()).step_by(piece_bytes.max(1));
    let piece = |start: usize| bytes.slice(start..bytes.len().min(start + piece_bytes.max(1)));
    starts.map(|start| Piece { gap, bytes: piece(start), ends_event: false }).collect()
}

/// `len` bytes that are the same on every run: the alphabet, over and over.
fn pattern(len: u64) -> Bytes {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    Bytes::from_iter((b'a'..=b'z').cycle().take(len))
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}

fn events(step: &Step, context: &mut Context<'_>) -> Vec<Piece> {
    let mut encoder = step.gzip.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
    let mut pieces: Vec<Piece> = Vec::new();
    for event in &step.events {
        for _ in 0..event.repeat.unwrap_or(1) {
            let text = event_text(event, context);
            let bytes = match &mut encoder {
                None => Bytes::from(text),
                // Flushed per event, so that each can be read as it comes.
                Some(encoder) => {
                    let _ = encoder.write_all(text.as_bytes()).and_then(|()| encoder.flush());
                    std::mem::take(encoder.get_mut()).into()
                }
            };
            let first = pieces.is_empty();
            let gap_ms = event.gap_ms.unwrap_or(if first { 0 } else { step.event_gap_ms });
            let mut parts =
                split(&bytes, step.chunk_bytes.unwrap_or(PIECE_BYTES), Duration::from_millis(step.chunk_gap_ms));
            if let Some(part) = parts.first_mut() {
                part.gap = Duration::from_millis(gap_ms);
            }
            if let Some(part) = parts.last_mut() {
                part.ends_event = true;
            }
            pieces.extend(parts);
        }
    }
    if let Some(encoder) = encoder {
        let bytes = encoder.finish().unwrap_or_default();
        pieces.push(Piece { gap: Duration::ZERO, bytes: bytes.into(), ends_event: false });
    }
    pieces
}

fn event_text(event: &Event, context: &mut Context<'_>) -> String {
    use super::scenario::values::Json;
    if let Some(raw) = &event.raw {
        return raw.render(context);
    }
    let mut text = String::new();
    if let Some(comment) = &event.comment {
        text.push_str(&format!(": {comment}\n"));
    }
    if let Some(name) = &event.event {
        text.push_str(&format!("event: {name}\n"));
    }
    if let Some(id) = &event.id {
        text.push_str(&format!("id: {}\n", id.render(context)));
    }
    if let Some(retry) = event.retry {
        text.push_str(&format!("retry: {retry}\n"));
    }
    if let Some(data) = &event.data {
        let data = match data {
            Json::Text(template) => template.render(context),
            json => json.render(context),
        };
        for line in data.split('\n') {
            text.push_str(&format!("data: {line}\n"));
        }
    }
    text.push('\n');
    text
}
