//! Writes protobuf messages by hand. Source: the encoding guide of protobuf.dev.

// Field numbers of trace.proto, trace_packet.proto, track_descriptor.proto, track_event.proto.
pub(super) const TRACE_PACKET: u32 = 1;

/// A protobuf message being written.
#[derive(Default)]
pub(super) struct Message(pub(super) Vec<u8>);

impl Message {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }

    pub(super) fn number(mut self, field: u32, v: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(v);
        self
    }

    pub(super) fn double(mut self, field: u32, v: f64) -> Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend(v.to_le_bytes());
        self
    }

    pub(super) fn bytes(mut self, field: u32, v: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(v.len() as u64);
        self.0.extend(v);
        self
    }

    pub(super) fn message(self, field: u32, m: &Message) -> Self {
        self.bytes(field, &m.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_protobuf() {
        // The example of the protobuf encoding guide: field 1, varint 150.
        assert_eq!(Message::default().number(1, 150).0, [0x08, 0x96, 0x01]);
        assert_eq!(
            Message::default().bytes(2, b"testing").0,
            [0x12, 7, b't', b'e', b's', b't', b'i', b'n', b'g']
        );
    }
}
