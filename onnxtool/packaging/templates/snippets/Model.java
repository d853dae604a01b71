@HEAD@
// com.microsoft.onnxruntime:onnxruntime
import ai.onnxruntime.*;
import java.nio.*;
import java.util.*;

public class Model implements AutoCloseable {
    private final OrtEnvironment environment = OrtEnvironment.getEnvironment();
    private final OrtSession session;

    public Model(String path) throws OrtException {
        session = environment.createSession(path);
    }

    public OrtSession.Result run(@PARAMETERS@) throws OrtException {
        Map<String, OnnxTensor> feeds = new HashMap<>();
        @FEEDS@
        @OUTPUTS@
        return session.run(feeds);
    }

    @Override
    public void close() throws OrtException {
        session.close();
    }
}
