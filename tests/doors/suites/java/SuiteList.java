import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.pulsar.broker.service.SharedPulsarBaseTest;
import org.testng.annotations.Test;

/** Prints "#test CLASS METHOD" for each test of a jar whose class extends SharedPulsarBaseTest: SuiteList JAR. */
public class SuiteList {
    public static void main(String[] arguments) throws Exception {
        TreeSet<String> lines = new TreeSet<>();
        try (JarFile jar = new JarFile(arguments[0])) {
            for (JarEntry entry : jar.stream().toList()) {
                String path = entry.getName();
                if (path.endsWith("Test.class") && !path.contains("$")) {
                    add(path.substring(0, path.length() - ".class".length()).replace('/', '.'), lines);
                }
            }
        }
        lines.forEach(System.out::println);
    }

    private static void add(String name, TreeSet<String> lines) throws Exception {
        Class<?> found;
        try {
            found = Class.forName(name, false, SuiteList.class.getClassLoader());
            if (!SharedPulsarBaseTest.class.isAssignableFrom(found) || Modifier.isAbstract(found.getModifiers())) {
                return;
            }
        } catch (NoClassDefFoundError another) {
            return; // It needs what the tests of the broker need, and none of ours.
        }
        boolean all = found.isAnnotationPresent(Test.class);
        for (Method method : found.getMethods()) {
            Test test = method.getAnnotation(Test.class);
            // A class that is a test as a whole also has methods that prepare tests, and others that provide arguments.
            boolean own = all && method.getDeclaringClass() == found && method.getAnnotations().length == 0;
            if (test == null ? own : test.enabled()) {
                lines.add("#test " + name + " " + method.getName());
            }
        }
    }
}
