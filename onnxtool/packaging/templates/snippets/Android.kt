@HEAD@
// build.gradle: implementation("com.microsoft.onnxruntime:onnxruntime-android:1.+")
import ai.onnxruntime.*
import android.content.Context
import java.nio.*

class Model(context: Context) : AutoCloseable {
    private val environment = OrtEnvironment.getEnvironment()
    private val session = environment.createSession(context.assets.open("model.ort").readBytes())

    fun run(@PARAMETERS@): OrtSession.Result {
        val feeds = mapOf(
        @FEEDS@)
        @OUTPUTS@
        return session.run(feeds)
    }

    override fun close() = session.close()
}
