@HEAD@
// dotnet add package Microsoft.ML.OnnxRuntime
using System;
using System.Collections.Generic;
using Microsoft.ML.OnnxRuntime;
using Microsoft.ML.OnnxRuntime.Tensors;

public sealed class Model : IDisposable
{
    private readonly InferenceSession session = new("model.ort");

    public IDisposableReadOnlyCollection<OrtValue> Run(@PARAMETERS@)
    {
        var feeds = new Dictionary<string, OrtValue>
        {
            @FEEDS@
        };
        using var options = new RunOptions();
        return session.Run(options, feeds, new[] { @OUTPUTS@ });
    }

    public void Dispose() => session.Dispose();
}
