import java.util.HexFormat;

import org.apache.kafka.tools.api.Decoder;

/** Keys and values as hex: a payload with line breaks in it could otherwise pass for a line of DumpLogSegments. */
public class HexDecoder implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
