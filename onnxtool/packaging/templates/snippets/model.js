@HEAD@
// npm install onnxruntime-node, or onnxruntime-react-native with the same calls
import * as ort from "onnxruntime-node";

const session = await ort.InferenceSession.create("model.ort");

export async function run(@PARAMETERS@) {
  const results = await session.run({
    @FEEDS@
  });
  @OUTPUTS@
  return results;
}
