@HEAD@
// Package or pod: onnxruntime-objc
import Foundation
import OnnxRuntimeBindings

final class Model {
    private let session: ORTSession

    init(path: String) throws {
        let environment = try ORTEnv(loggingLevel: .warning)
        let options = try ORTSessionOptions()
        session = try ORTSession(env: environment, modelPath: path, sessionOptions: options)
    }

    func run(@PARAMETERS@) throws -> [String: ORTValue] {
        let feeds = [
            @FEEDS@]
        return try session.run(withInputs: feeds, outputNames: [@OUTPUTS@], runOptions: nil)
    }
}
